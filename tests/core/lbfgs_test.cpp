// L-BFGS: known minima to the tolerance, with far fewer gradients than descent, and an end where rounding,
// a limit or a gradient that is not finite ends it.
#include "bilevel/core/lbfgs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>

#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;

// Curvatures from 0.03 to 30, rotated: a condition number of 1000.
struct IllConditioned {
  Tensor matrix, solution = random_vector(40, 3);
  IllConditioned() {
    const Tensor q = std::get<0>(at::linalg_qr(random_vector(1600, 5).view({40, 40})));
    matrix = q.mm(at::diag(at::logspace(-1.5, 1.5, 40, 10.0, at::kDouble))).mm(q.t());
  }
  Tensor gradient(const Tensor& w) const { return matrix.mv(w - solution); }
};

TEST(Lbfgs, solves_an_ill_conditioned_quadratic_to_the_tolerance) {
  const IllConditioned problem;
  int64_t calls = 0;
  const LbfgsResult result = minimize(
      [&](const Tensor& w) {
        ++calls;
        return problem.gradient(w);
      },
      at::zeros({40}, at::kDouble), {.tolerance = 1e-9, .first_step = 0.03});
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_EQ(result.gradients, calls);
  EXPECT_LT(calls, 500);  // gradient descent at 1 / L takes 1000 log(1e11) = 25,000
  EXPECT_NEAR(result.gradient_norm, length(problem.gradient(result.w)), 1e-15);
  EXPECT_LE(result.gradient_norm, 1e-9);
  EXPECT_LT(length(result.w - problem.solution), 1e-9 / 0.03);
}

// Rosenbrock's valley is not convex and starts with a bad scale.
TEST(Lbfgs, follows_a_valley) {
  for (const double first_step : {1e-6, 1e-3, 1e3}) {
    const LbfgsResult result = minimize(
        [](const Tensor& w) {
          const double a = number(w[0]), b = number(w[1]);
          return vec({-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)});
        },
        vec({-1.2, 1}), {.tolerance = 1e-10, .first_step = first_step});
    EXPECT_EQ(result.status, Status::converged) << first_step;
    EXPECT_LT(length(result.w - vec({1, 1})), 1e-9) << first_step;
    EXPECT_LT(result.gradients, 300) << first_step;
  }
}

TEST(Lbfgs, comes_back_from_where_the_gradient_is_not_finite) {
  // d/dw (w - log w): the first step leads far below zero, where there is no logarithm.
  const auto gradient = [](const Tensor& w) { return at::where(w > 0, 1 - 1 / w, at::full_like(w, NAN)); };
  const LbfgsResult result = minimize(gradient, vec({8}), {.tolerance = 1e-12, .first_step = 1e4});
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_NEAR(number(result.w[0]), 1, 1e-11);
  EXPECT_EQ(minimize(gradient, vec({-1}), {}).status, Status::not_finite);
}

TEST(Lbfgs, says_what_ended_it) {
  const IllConditioned problem;
  const auto gradient = [&](const Tensor& w) { return problem.gradient(w); };
  const Tensor zero = at::zeros({40}, at::kDouble);
  const LbfgsResult limited = minimize(gradient, zero, {.tolerance = 1e-9, .most_gradients = 7});
  EXPECT_EQ(limited.status, Status::max_iterations);
  EXPECT_EQ(limited.gradients, 7);
  EXPECT_LT(limited.gradient_norm, length(gradient(zero)));
  // A tolerance below rounding.
  const LbfgsResult rounding = minimize(gradient, zero, {.tolerance = 1e-30});
  EXPECT_EQ(rounding.status, Status::breakdown);
  EXPECT_LT(rounding.gradient_norm, 1e-9);
  EXPECT_LT(rounding.gradients, 3000);
  EXPECT_EQ(minimize(gradient, problem.solution, {.tolerance = 1e-9}).gradients, 1);
}

TEST(Lbfgs, misuse_names_the_option) {
  const auto of = [](const LbfgsOptions& options) { return message([&] { options.validate(); }); };
  EXPECT_THAT(of({.tolerance = -1}), HasSubstr("tolerance = -1"));
  EXPECT_THAT(of({.first_step = 0}), HasSubstr("first_step = 0"));
  EXPECT_THAT(of({.most_gradients = 0}), HasSubstr("most_gradients = 0"));
}

}  // namespace
}  // namespace bilevel::test
