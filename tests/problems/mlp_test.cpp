#include "bilevel/problems/mlp.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Mlp, LossesByHand) {
  const Mlp problem({.data = {.classes = 2, .features = 1}, .hidden = 2, .samples = 2, .valid_samples = 2});
  // hidden.weight (2,1), hidden.bias (2), output.weight (2,2), output.bias (2)
  const std::vector<double> w{0.5, -1, 0.1, 0.2, 1, 2, -1, 0.5, 0.3, -0.4};
  const std::vector<double> x{-1, -2, -3, -4, 0.7, -0.6};
  auto loss = [&](const LabelledExamples& examples, int64_t i) {
    const double feature = value(examples.features[i][0]);
    const double hidden[2] = {std::tanh(w[0] * feature + w[2]), std::tanh(w[1] * feature + w[3])};
    const double score[2] = {w[4] * hidden[0] + w[5] * hidden[1] + w[8],
                             w[6] * hidden[0] + w[7] * hidden[1] + w[9]};
    return std::log(std::exp(score[0]) + std::exp(score[1])) - score[examples.labels[i].item<int64_t>()];
  };
  auto sigmoid = [](double logit) { return 1 / (1 + std::exp(-logit)); };
  const double penalty = std::exp(-1) * (0.25 + 1) + std::exp(-2) * (0.01 + 0.04) +
                         std::exp(-3) * (1 + 4 + 1 + 0.25) + std::exp(-4) * (0.09 + 0.16);
  const double first = sigmoid(0.7) * loss(problem.train(), 0);
  const double second = sigmoid(-0.6) * loss(problem.train(), 1);
  EXPECT_NEAR(value(problem.inner_loss(vector(w), vector(x), {})), (first + second) / 2 + penalty, 1e-13);
  EXPECT_NEAR(value(problem.inner_loss(vector(w), vector(x), {at::tensor({1L}), 0})), second + penalty,
              1e-13);
  EXPECT_NEAR(value(problem.outer_loss(vector(w), vector(x), {})),
              (loss(problem.valid(), 0) + loss(problem.valid(), 1)) / 2, 1e-13);
}

TEST(Mlp, SizesAndStarts) {
  const Mlp problem;
  EXPECT_EQ(problem.initial_inner(0).numel(), 136);
  EXPECT_EQ(problem.initial_outer(0).numel(), 44);
  EXPECT_FALSE(at::equal(problem.initial_inner(0), problem.initial_inner(1)));
  const auto& entries = problem.inner_layout()->entries();
  EXPECT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[2].name, "output.weight");
}

// Against J' L'' J built by hand: J v from differences of the outputs, L'' = weight_i / N (diag(p) - pp').
TEST(Mlp, GaussNewtonIsJacobianTimesLossCurvatureTimesJacobian) {
  const Mlp problem;
  const Point point = generic_point(problem);
  const Tensor v = random_like(point.w, 6);
  const Tensor v2 = random_like(point.w, 7);
  auto outputs = [&](const Tensor& w) { return problem.inner_parts(w, point.x, {})->outputs; };
  const Tensor jv = difference(outputs, point.w, v);
  const Tensor jv2 = difference(outputs, point.w, v2);
  const Tensor p = outputs(point.w).softmax(1);
  const Tensor weights = point.x.slice(0, 4).sigmoid().unsqueeze(1) / 40;
  const Tensor curved = weights * (p * jv - p * (p * jv).sum(1, true));
  const Tensor penalty = 2 * problem.inner_layout()->repeat_per_entry(point.x.slice(0, 0, 4).exp());
  const double expected = value((jv2 * curved).sum() + (penalty * v * v2).sum());
  EXPECT_LT(relative_error(value(v2.dot(problem.linearize(point.w, point.x, {})->gauss_newton(v))), expected),
            1e-8);
}

TEST(Mlp, GaussNewtonIsPositiveAndNotTheHessian) {
  const Mlp problem;
  const Tensor x = problem.initial_outer(0);
  const Tensor w = descend(problem, problem.initial_inner(0), x, 100, 0.3);
  const auto linear = problem.linearize(w, x, {});
  const Tensor matrix = dense(w.numel(), [&](const Tensor& v) { return linear->gauss_newton(v); });
  EXPECT_LT(value((matrix - matrix.t()).abs().max()), 1e-14);
  const double regularizer_curvature = 2 * std::exp(-5);
  EXPECT_GT(value(eigenvalues(matrix)[0]), regularizer_curvature * (1 - 1e-10));
  const Tensor hessian = dense(w.numel(), [&](const Tensor& v) { return linear->hessian(v); });
  EXPECT_GT(relative_error(matrix, hessian), 0.01);
  EXPECT_LT(value(eigenvalues(hessian)[0]), 0);
}

TEST(Mlp, PartsAddUpToTheInnerLoss) {
  const Mlp problem;
  const Point point = generic_point(problem);
  for (const Batch& batch : {Batch{}, partition(40, 5)[3]}) {
    const auto parts = problem.inner_parts(point.w, point.x, batch);
    ASSERT_TRUE(parts.has_value());
    EXPECT_NEAR(value(parts->loss(parts->outputs) + parts->regularizer),
                value(problem.inner_loss(point.w, point.x, batch)), 1e-14);
  }
}

TEST(Mlp, RefusesBadOptions) {
  EXPECT_THAT([] { Mlp({.hidden = 0}); }, ThrowsMessage<std::invalid_argument>(HasSubstr("hidden = 0")));
  EXPECT_THAT([] { Mlp({.initial_log = NAN}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("initial_log = nan")));
}

}  // namespace
}  // namespace bilevel::testing
