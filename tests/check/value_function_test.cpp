// f(x, w*(x)) and its gradient against the closed forms of ridge, from any start.
#include "bilevel/check/value_function.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double closed_value(const Ridge& ridge, const Tensor& x) {
  return number(ridge.outer_loss(ridge.solution(x), x, {}));
}

TEST(ValueFunction, IsTheClosedFormFromAnyStart) {
  // Few features are factorised, many solved by conjugate gradients.
  for (const int64_t features : {20, 300}) {
    const Ridge ridge(RidgeOptions{.features = features, .samples = 400, .seed = 3});
    ValueFunction value(ridge);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const Tensor x = random_like(ridge.initial_outer(0), seed);
      const auto point = value.point(x, 10 * random_like(ridge.initial_inner(0), seed + 10));
      ASSERT_TRUE(point.has_value()) << value.why();
      EXPECT_NEAR(point->value, closed_value(ridge, x), 1e-7 * closed_value(ridge, x));
      const double gradient = length(ridge.hypergradient(x));
      EXPECT_NEAR(point->gradient_norm, gradient, 1e-6 * gradient);
      EXPECT_EQ(*value.value(x, {}), point->value);  // the solution is at hand
    }
  }
}

// At a bound of x the gradient points outwards and cannot be followed.
TEST(ValueFunction, TheGradientIsWhatIsLeftOfAStepInsideTheSet) {
  const Ridge ridge(RidgeOptions{.stable_rate = 0.3});
  ASSERT_LT(ridge.largest_outer(), 2);
  const Tensor x = at::full_like(ridge.initial_outer(0), ridge.largest_outer());
  const Tensor gradient = ridge.hypergradient(x);
  const Tensor inwards = gradient.clamp_min(0);  // x - gradient may only fall
  ASSERT_GT(length(gradient - inwards), 1e-3);
  ValueFunction value(ridge);
  const auto point = value.point(x, ridge.initial_inner(0));
  ASSERT_TRUE(point.has_value()) << value.why();
  EXPECT_NEAR(point->gradient_norm, length(inwards), 1e-6);
}

TEST(ValueFunction, APointThatIsNotSolvedSaysWhy) {
  const Ridge ridge(RidgeOptions{.features = 300, .samples = 400});
  ValueFunction value(ridge, {.products = 3});
  EXPECT_FALSE(value.value(ridge.initial_outer(0), ridge.initial_inner(0)).has_value());
  EXPECT_THAT(value.why(),
              HasSubstr("the inner problem was not solved: max_iterations after 3 Hessian products"));
}

TEST(ValueFunction, RefusesOptionsOutOfBoundsByName) {
  const Ridge ridge(RidgeOptions{});
  EXPECT_THAT([&] { ValueFunction(ridge, {.relative_tolerance = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("relative_tolerance")));
  EXPECT_THAT([&] { ValueFunction(ridge, {.products = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("products")));
}

}  // namespace
}  // namespace bilevel::test
