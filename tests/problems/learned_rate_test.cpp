#include "bilevel/problems/learned_rate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LearnedRate, OuterVectorHoldsRatesStartAndRegularisers) {
  const LearnedRate problem;
  const Tensor x = problem.initial_outer(3);
  ASSERT_EQ(x.numel(), 2 + 35 + 2);
  ASSERT_NE(problem.inner_layout(), nullptr);
  EXPECT_EQ(problem.inner_layout()->entries().size(), 2U);
  EXPECT_EQ(problem.inner_layout()->size(), 35);
  EXPECT_LT(relative_error(problem.inner_rate(x), vector({0.3, 0.3})), 1e-15);
  EXPECT_TRUE(at::equal(problem.inner_start(x), problem.initial_inner(3)));
  Tensor moved = x.clone();
  moved[1] = std::log(0.7);
  moved[2] = 42;
  EXPECT_LT(relative_error(problem.inner_rate(moved), vector({0.3, 0.7})), 1e-15);
  EXPECT_EQ(value(problem.inner_start(moved)[0]), 42);
}

TEST(LearnedRate, LossesByHand) {
  const LearnedRate problem(
      {.data = {.classes = 2, .features = 1}, .hidden = 1, .samples = 2, .valid_samples = 2});
  const std::vector<double> w{0.8, 1.5, -0.5};  // hidden.weight (1,1), output.weight (2,1)
  const Tensor x = vector({0, 0, 9, 9, 9, -1, -2});
  auto loss = [&](const LabelledExamples& examples, int64_t i) {
    const double hidden = std::tanh(w[0] * value(examples.features[i][0]));
    const double score[2] = {w[1] * hidden, w[2] * hidden};
    return std::log(std::exp(score[0]) + std::exp(score[1])) - score[examples.labels[i].item<int64_t>()];
  };
  const double penalty = std::exp(-1) * 0.64 + std::exp(-2) * (2.25 + 0.25);
  EXPECT_NEAR(value(problem.inner_loss(vector(w), x, {})),
              (loss(problem.train(), 0) + loss(problem.train(), 1)) / 2 + penalty, 1e-14);
  EXPECT_NEAR(value(problem.outer_loss(vector(w), x, {})),
              (loss(problem.valid(), 0) + loss(problem.valid(), 1)) / 2, 1e-14);
}

TEST(LearnedRate, WithoutLearnedRegularisersTheInnerLossHasNoOuterVariable) {
  const LearnedRate problem({.learn_regularization = false});
  const LearnedRate learned;
  EXPECT_FALSE(problem.inner_loss_uses_outer());
  EXPECT_TRUE(learned.inner_loss_uses_outer());
  const Point point = generic_point(problem);
  EXPECT_EQ(point.x.numel(), 2 + 35);
  EXPECT_EQ(value(problem.inner_loss(point.w, point.x, {})),
            value(problem.inner_loss(point.w, point.x + 1, {})));
  // The same g as the learned one at its initial regularisers.
  EXPECT_NEAR(value(problem.inner_loss(point.w, point.x, {})),
              value(learned.inner_loss(point.w, learned.initial_outer(0), {})), 1e-14);
  const auto linear = problem.linearize(point.w, point.x, {});
  EXPECT_EQ(value(linear->cross(random_like(point.w, 1)).norm()), 0);
  EXPECT_EQ(value(linear->cross_transposed(random_like(point.x, 1)).norm()), 0);
  EXPECT_LT(relative_error(linear->hessian(point.w),
                           difference([&](const Tensor& w) { return problem.inner_gradient(w, point.x, {}); },
                                      point.w, point.w)),
            1e-7);
}

TEST(LearnedRate, RefusesBadOptions) {
  EXPECT_THAT([] { LearnedRate({.hidden = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("hidden = 0")));
  EXPECT_THAT([] { LearnedRate({.initial_rate = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("initial_rate = 0")));
  EXPECT_THAT([] { LearnedRate({.initial_regularization = -1}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("initial_regularization = -1")));
}

}  // namespace
}  // namespace bilevel::testing
