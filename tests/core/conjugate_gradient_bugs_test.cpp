// The bugs that other systems ship in their conjugate gradients. Each test runs its check on the buggy form
// too, and sees it fail.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "tests/core/matrices.h"

namespace bilevel {
namespace {

using namespace matrices;  // NOLINT(google-build-using-namespace)

enum class Bug { none, forgets_last_iterate, scales_iterate_only, keeps_old_residual };

// Textbook conjugate gradients with one bug, as found in public code.
Tensor buggy_cg(Bug bug, const MatrixProduct& matrix, const Tensor& b, int64_t max_iterations,
                double tolerance, double step_scale = 1) {
  Tensor x = at::zeros_like(b);
  Tensor r = b.clone();
  Tensor d = r.clone();
  for (int64_t k = 0; k < max_iterations; ++k) {
    const Tensor q = matrix(d);
    const Tensor alpha = at::dot(r, r) / at::dot(d, q);
    const Tensor x_next = x + step_scale * alpha * d;
    const Tensor r_next = r - (bug == Bug::scales_iterate_only ? alpha : step_scale * alpha) * q;
    if (bug == Bug::forgets_last_iterate && norm2(r_next) < tolerance) break;
    const Tensor beta = at::dot(r_next, r_next) / at::dot(r, r);
    d = (bug == Bug::keeps_old_residual ? r : r_next) + beta * d;
    x = x_next;
    r = r_next;
    if (norm2(r) < tolerance) break;
  }
  return x;
}

TEST(ConjugateGradientBugs, Bug1BreaksOutBeforeStoringTheLastIterate) {
  const auto identity = [](const Tensor& v) { return v; };
  const Tensor ones = at::ones({6}, at::kDouble);
  const auto solves_identity = [&](const Tensor& v) { return relative_error(v, ones) < 1e-6; };
  EXPECT_TRUE(solves_identity(conjugate_gradient(identity, ones, steps(10, 1e-6)).solution));
  EXPECT_TRUE(solves_identity(buggy_cg(Bug::none, identity, ones, 10, 1e-6)));
  EXPECT_FALSE(solves_identity(buggy_cg(Bug::forgets_last_iterate, identity, ones, 10, 1e-6)));

  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor b = random_vector(6, 5);
  const auto solves_six = [&](const Tensor& v) { return relative_error(v, solve(a, b)) < 1e-4; };
  EXPECT_TRUE(solves_six(conjugate_gradient(product_with(a), b, steps(10, 1e-6)).solution));
  EXPECT_TRUE(solves_six(buggy_cg(Bug::none, product_with(a), b, 10, 1e-6)));
  EXPECT_FALSE(solves_six(buggy_cg(Bug::forgets_last_iterate, product_with(a), b, 10, 1e-6)));
}

TEST(ConjugateGradientBugs, Bug1DividesZeroByZeroOnAZeroRightHandSide) {
  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor zero = at::zeros({6}, at::kDouble);
  const auto is_zero = [](const Tensor& v) { return norm2(v) == 0; };
  const CountedProduct counted(a);
  KrylovSolveOptions options = steps(10, 1e-6);
  options.warm_start = random_vector(6, 5);
  const LinearResult result = conjugate_gradient(counted, zero, options);
  EXPECT_TRUE(is_zero(result.solution));
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_EQ(result.products, 0);
  EXPECT_EQ(*counted.calls, 0);
  EXPECT_EQ(result.relative_residual, 0);
  EXPECT_EQ(result.residual(), 0);
  EXPECT_FALSE(
      is_zero(buggy_cg(Bug::none, product_with(a), zero, 10, 0)));  // the textbook loop itself has it
}

TEST(ConjugateGradientBugs, Bug2StepScaleOnTheIterateButNotOnTheResidual) {
  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor b = random_vector(6, 5);
  const auto solves = [&](const Tensor& v) { return relative_error(v, solve(a, b)) < 1e-6; };
  EXPECT_TRUE(solves(conjugate_gradient(product_with(a), b, steps(50, 1e-10)).solution));
  EXPECT_TRUE(solves(buggy_cg(Bug::scales_iterate_only, product_with(a), b, 50, 1e-10, 1)));
  EXPECT_FALSE(solves(buggy_cg(Bug::scales_iterate_only, product_with(a), b, 50, 1e-10, 0.9)));
  // What the recurred residual hides, the reported one must not: it is that of the returned solution.
  const LinearResult partial = conjugate_gradient(product_with(a), b, steps(3));
  EXPECT_NEAR(partial.residual(), norm2(b - at::mv(a, partial.solution)), 1e-12);
}

TEST(ConjugateGradientBugs, Bug2KeepsTheOldResidualInTheDirection) {
  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor b = random_vector(6, 5);
  const auto solves = [&](const Tensor& v) { return relative_error(v, solve(a, b)) < 1e-6; };
  EXPECT_TRUE(solves(conjugate_gradient(product_with(a), b, steps(50, 1e-10)).solution));
  EXPECT_FALSE(solves(buggy_cg(Bug::keeps_old_residual, product_with(a), b, 50, 1e-10)));
}

TEST(ConjugateGradientBugs, Bug6HasNoBreakdownGuard) {
  const auto zero_matrix = [](const Tensor& v) { return at::zeros_like(v); };
  const Tensor b = vector_of({1, 2});
  const auto is_finite = [](const Tensor& v) { return at::isfinite(v).all().item<bool>(); };
  const LinearResult result = conjugate_gradient(zero_matrix, b, steps(5));
  EXPECT_TRUE(is_finite(result.solution));
  EXPECT_EQ(result.status, Status::breakdown);
  EXPECT_EQ(result.relative_residual, 1);
  EXPECT_FALSE(is_finite(buggy_cg(Bug::none, zero_matrix, b, 5, 1e-6)));
}

TEST(ConjugateGradientBugs, Bug6ScalarProblemGetsNoIterations) {
  const auto four = [](const Tensor& v) { return 4 * v; };
  const Tensor b = vector_of({8});
  const auto solves = [](const Tensor& v) { return std::abs(v[0].item<double>() - 2) < 1e-12; };
  const LinearResult result = conjugate_gradient(four, b);
  EXPECT_TRUE(solves(result.solution));
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_EQ(result.iterations, 1);
  const int64_t derived_limit = b.numel() - 1;  // their default
  EXPECT_FALSE(solves(buggy_cg(Bug::none, four, b, derived_limit, 1e-6)));
  // And where no iteration is really asked for, the status says that this is not a solution.
  EXPECT_EQ(conjugate_gradient(four, b, steps(0)).status, Status::max_iterations);
}

}  // namespace
}  // namespace bilevel
