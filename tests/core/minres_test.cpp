// MINRES against dense solutions, the smallest residual of every Krylov space, and singular systems.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "tests/core/matrices.h"

namespace bilevel {
namespace {

using namespace matrices;  // NOLINT(google-build-using-namespace)

TEST(Minres, AResidualThatStandsStillForAStepIsNoBreakdown) {
  // b'Ab = 0: the first step cannot move, the second one solves.
  const LinearResult mirror = minres(product_with(at::diag(vector_of({1, -1}))), vector_of({1, 1}), steps(5));
  EXPECT_EQ(mirror.status, Status::converged);
  EXPECT_LT(relative_error(mirror.solution, vector_of({1, -1})), 1e-14);
  // The same but for rounding, which makes the first step a tiny one.
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Tensor rotated = with_eigenvalues({1, -1}, seed);
    const Tensor both = std::get<1>(at::linalg_eigh(rotated)).sum(1);
    const LinearResult result = minres(product_with(rotated), both, steps(5));
    EXPECT_EQ(result.status, Status::converged) << "seed " << seed;
    EXPECT_LT(relative_error(result.solution, solve(rotated, both)), 1e-14) << "seed " << seed;
  }
  const Tensor a = with_eigenvalues(at::linspace(-1, 1, 40, at::kDouble), 3);
  const Tensor b = random_vector(40, 4);
  const LinearResult result = minres(product_with(a), b, steps(100, 1e-10));
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_LT(relative_error(result.solution, solve(a, b)), 1e-7);
}

TEST(Minres, SolvesIndefiniteSystemsWithinAsManyStepsAsUnknowns) {
  for (const int64_t n : {1, 2, 5, 12}) {
    const Tensor a = with_eigenvalues(at::linspace(-3, 4.3, n, at::kDouble), 7);
    const Tensor b = random_vector(n, 3);
    const LinearResult result = minres(product_with(a), b, steps(n + 1, 1e-12));
    EXPECT_EQ(result.status, Status::converged) << "n = " << n << ": " << name_of(result.status);
    EXPECT_LE(result.iterations, n + 1);
    EXPECT_LT(relative_error(result.solution, solve(a, b)), 1e-10) << "n = " << n;
  }
}

TEST(Minres, EveryIterateHasTheSmallestResidualOfItsKrylovSpace) {
  const Tensor a = with_eigenvalues({-7, -3, -1, 0.5, 2, 4, 9, 15}, 2);
  const Tensor b = random_vector(8, 3) * 100;
  std::vector<Tensor> images;  // A b, A^2 b, ...
  Tensor power = b;
  const LinearResult all = minres(product_with(a), b, steps(7));
  for (int64_t k = 1; k <= 7; ++k) {
    power = at::mv(a, power);
    images.push_back(power / norm2(power));
    const Tensor q = std::get<0>(at::linalg_qr(at::stack(images, 1)));
    const double smallest = norm2(b - at::mv(q, at::mv(q.t(), b)));
    const LinearResult result = minres(product_with(a), b, steps(k));
    EXPECT_NEAR(norm2(b - at::mv(a, result.solution)), smallest, 1e-8) << "k = " << k;
    EXPECT_NEAR(all.residuals[static_cast<size_t>(k)], smallest, 1e-8) << "k = " << k;
    EXPECT_EQ(result.products, k);
    EXPECT_EQ(result.status, Status::max_iterations);
  }
}

TEST(Minres, TakesOneProductAStepAndOneMoreWhenWarm) {
  const Tensor a = with_eigenvalues(at::linspace(-5, 20, 30, at::kDouble), 2);
  const Tensor b = random_vector(30, 3);
  for (const int64_t count : {0, 1, 4}) {
    const CountedProduct cold(a);
    EXPECT_EQ(minres(cold, b, steps(count)).products, count);
    EXPECT_EQ(*cold.calls, count);
    const CountedProduct warm(a);
    KrylovSolveOptions options = steps(count);
    options.warm_start = random_vector(30, 4);
    const LinearResult result = minres(warm, b, options);
    EXPECT_EQ(result.products, count + 1);
    EXPECT_EQ(*warm.calls, count + 1);
    EXPECT_NEAR(result.residual(), norm2(b - at::mv(a, result.solution)), 1e-10);
  }
}

TEST(Minres, WarmStartAndDamping) {
  const Tensor a = with_eigenvalues({-7, -3, -1, 0.5, 2, 4}, 2);
  const Tensor damped = a + 0.25 * at::eye(6, a.options());
  const Tensor b = random_vector(6, 3);
  KrylovSolveOptions options = steps(8, 1e-12);
  options.damping = 0.25;
  EXPECT_LT(relative_error(minres(product_with(a), b, options).solution, solve(damped, b)), 1e-10);
  options.warm_start = random_vector(6, 4);
  EXPECT_LT(relative_error(minres(product_with(a), b, options).solution, solve(damped, b)), 1e-10);
  options.warm_start = solve(damped, b);
  options.relative_tolerance = 1e-10;
  const LinearResult at_solution = minres(product_with(a), b, options);
  EXPECT_EQ(at_solution.products, 1);
  EXPECT_EQ(at_solution.status, Status::converged);
}

TEST(Minres, SolvesConsistentSingularSystemsDownToRounding) {
  // Left running far beyond convergence, which is where textbook MINRES walks away again.
  const auto check = [](const Tensor& eigenvalues, uint64_t seed, at::ScalarType type) {
    const double epsilon = type == at::kDouble ? 2.3e-16 : 1.2e-7;
    const Tensor a = with_eigenvalues(eigenvalues, seed).to(type);
    const int64_t n = a.size(0);
    const Tensor b = at::mv(a, random_vector(n, seed + 3, type));
    const LinearResult result = minres(product_with(a), b, steps(5 * n));
    EXPECT_EQ(result.status, Status::converged)
        << name_of(result.status) << " at " << result.relative_residual;
    EXPECT_LT(norm2(b - at::mv(a, result.solution)), 100 * epsilon * norm2(b));
  };
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      check(at::cat({at::zeros({20}, at::kDouble), at::linspace(-2, 8, 80, at::kDouble)}), seed, type);
      check(at::cat({at::zeros({100}, at::kDouble), vector_of({1, -2, 3})}), seed, type);
    }
  }
}

TEST(Minres, InconsistentSystemsEndInALeastSquaresSolution) {
  const auto check = [](const Tensor& eigenvalues, uint64_t seed, at::ScalarType type) {
    const Tensor a = with_eigenvalues(eigenvalues, seed).to(type);
    const int64_t n = a.size(0);
    const Tensor b = random_vector(n, seed + 3, type);
    const LinearResult result = minres(product_with(a), b, steps(10 * n));
    EXPECT_EQ(result.status, Status::breakdown) << name_of(result.status) << ", seed " << seed;
    const Tensor r = b - at::mv(a, result.solution);
    // The residual feels A r by its square: sqrt(epsilon) is as near as it comes.
    EXPECT_LT(norm2(at::mv(a, r)), (type == at::kDouble ? 1e-5 : 5e-2) * norm2(b)) << seed;
    EXPECT_NEAR(result.residual() / norm2(r), 1, type == at::kDouble ? 1e-10 : 1e-3) << seed;
    EXPECT_LT(norm2(result.solution), 1e4 * norm2(b)) << "explodes along the null space, seed " << seed;
  };
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      check(vector_of({-4, -1, 0, 0, 2, 3, 8}), seed, type);
      check(at::cat({at::zeros({20}, at::kDouble), at::linspace(-2, 8, 80, at::kDouble)}), seed, type);
      check(at::cat({at::zeros({100}, at::kDouble), vector_of({1, -2, 3})}), seed, type);
    }
  }
  // b in the null space, and no matrix at all: nothing can be done, and it is said.
  const Tensor projector = at::diag(vector_of({1, 0}));
  const LinearResult stuck = minres(product_with(projector), vector_of({0, 3}), steps(5));
  EXPECT_EQ(stuck.status, Status::breakdown);
  EXPECT_EQ(stuck.relative_residual, 1);
  EXPECT_EQ(stuck.products, 1);
}

TEST(Minres, ZeroNotFiniteIdentityAndFloat) {
  const auto identity = [](const Tensor& v) { return v; };
  const Tensor b = random_vector(5, 3);
  const Tensor before = b.clone();
  EXPECT_LT(relative_error(minres(identity, b).solution, b), 1e-15);
  EXPECT_TRUE(b.equal(before));

  const CountedProduct counted(identity);
  EXPECT_EQ(minres(counted, at::zeros({5}, at::kDouble)).status, Status::converged);
  EXPECT_EQ(*counted.calls, 0);

  int64_t calls = 0;
  const Tensor a = with_eigenvalues({-2, -1, 1, 2, 3}, 4);
  const LinearResult poisoned =
      minres([&](const Tensor& v) { return ++calls == 3 ? at::full_like(v, not_a_number) : at::mv(a, v); }, b,
             steps(5));
  EXPECT_EQ(poisoned.status, Status::not_finite);
  EXPECT_EQ(poisoned.iterations, 2);
  EXPECT_TRUE(all_finite(poisoned.solution));
  EXPECT_EQ(minres(identity, b * not_a_number).status, Status::not_finite);

  for (const double size : {1e-40, 1e-30, 1.0, 1e30}) {
    const Tensor single = (b * size).to(at::kFloat);
    const LinearResult result = minres(product_with(a.to(at::kFloat)), single, steps(20, 1e-6));
    EXPECT_EQ(result.solution.scalar_type(), at::kFloat);
    EXPECT_EQ(result.status, Status::converged) << size;
    EXPECT_LT(relative_error(result.solution, solve(a, single.to(at::kDouble))), size < 1e-37 ? 1e-3 : 1e-5)
        << size;
  }
}

}  // namespace
}  // namespace bilevel
