#include "bilevel/problems/softmax_regression.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

TEST(SoftmaxRegression, LossesByHand) {
  const SoftmaxRegression problem({.data = {.classes = 2, .features = 3}, .samples = 4, .valid_samples = 4});
  const Tensor w = vector({0.5, -1, 2, 1, 0.25, -0.75});
  const Tensor x = vector({0.1, -0.2, 0.3});
  auto mean_loss = [&](const LabelledExamples& examples) {
    double sum = 0;
    for (int64_t i = 0; i < 4; ++i) {
      double score[2] = {0, 0};
      for (int64_t j = 0; j < 3; ++j) {
        const double feature = value(examples.features[i][j]);
        score[0] += feature * value(w[j]);
        score[1] += feature * value(w[3 + j]);
      }
      const double largest = std::max(score[0], score[1]);
      sum += largest + std::log(std::exp(score[0] - largest) + std::exp(score[1] - largest)) -
             score[examples.labels[i].item<int64_t>()];
    }
    return sum / 4;
  };
  const double penalty =
      (std::exp(0.1) * (0.25 + 1) + std::exp(-0.2) * (1 + 0.0625) + std::exp(0.3) * (4 + 0.5625)) / 6;
  EXPECT_NEAR(value(problem.inner_loss(w, x, {})), mean_loss(problem.train()) + penalty, 1e-14);
  EXPECT_NEAR(value(problem.outer_loss(w, x, {})), mean_loss(problem.valid()), 1e-14);
}

TEST(SoftmaxRegression, SizesAndStart) {
  const SoftmaxRegression problem;
  EXPECT_EQ(problem.initial_inner(0).numel(), 100);
  EXPECT_EQ(problem.initial_outer(0).numel(), 20);
  EXPECT_NEAR(value(problem.inner_loss(problem.initial_inner(0), problem.initial_outer(0), {})),
              std::log(5.0), 1e-14);
}

TEST(SoftmaxRegression, GaussNewtonIsTheHessian) {  // the model is linear in w
  const SoftmaxRegression problem;
  const Point point = generic_point(problem);
  const Tensor v = random_like(point.w, 5);
  for (const Batch& batch : {Batch{}, partition(100, 5)[2]}) {
    const auto linear = problem.linearize(point.w, point.x, batch);
    EXPECT_LT(relative_error(linear->gauss_newton(v), linear->hessian(v)), 1e-12);
  }
}

TEST(SoftmaxRegression, PartsAddUpToTheInnerLoss) {
  const SoftmaxRegression problem;
  const Point point = generic_point(problem);
  const auto parts = problem.inner_parts(point.w, point.x, {});
  ASSERT_TRUE(parts.has_value());
  EXPECT_NEAR(value(parts->loss(parts->outputs) + parts->regularizer),
              value(problem.inner_loss(point.w, point.x, {})), 1e-14);
}

}  // namespace
}  // namespace bilevel::testing
