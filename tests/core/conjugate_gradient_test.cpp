// Conjugate gradients against dense solutions, its error bounds, its ends, and the bugs that other systems
// ship.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "tests/core/matrices.h"

namespace bilevel {
namespace {

using namespace matrices;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double energy_norm(const Tensor& a, const Tensor& v) {
  return std::sqrt(at::dot(v, at::mv(a, v)).item<double>());
}

TEST(ConjugateGradient, EndsWithinAsManyStepsAsUnknowns) {
  for (const int64_t n : {1, 2, 3, 8, 20}) {
    const Tensor a = with_eigenvalues(at::linspace(1, 5, n, at::kDouble), 7);
    const Tensor b = random_vector(n, 3);
    const LinearResult result = conjugate_gradient(product_with(a), b, steps(n, 1e-12));
    EXPECT_EQ(result.status, Status::converged) << "n = " << n;
    EXPECT_LE(result.iterations, n);
    EXPECT_LT(relative_error(result.solution, solve(a, b)), 1e-11) << "n = " << n;
  }
}

TEST(ConjugateGradient, EndsWithinAsManyStepsAsDistinctEigenvalues) {
  const Tensor a = with_eigenvalues({1, 1, 1, 1, 9, 9, 9, 30}, 7);
  const LinearResult result = conjugate_gradient(product_with(a), random_vector(8, 3), steps(8, 1e-10));
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_EQ(result.iterations, 3);
}

TEST(ConjugateGradient, TakesExactlyTheStepsAskedFor) {
  const Tensor a = with_eigenvalues(at::logspace(0, 3, 12, 10, at::kDouble), 1);
  const Tensor b = random_vector(12, 2);
  for (const int64_t count : {0, 1, 2, 5, 9}) {
    const CountedProduct cold(a);
    const LinearResult result = conjugate_gradient(cold, b, steps(count));
    EXPECT_EQ(*cold.calls, count);
    EXPECT_EQ(result.products, count);
    EXPECT_EQ(result.iterations, count);
    EXPECT_EQ(result.residuals.size(), static_cast<size_t>(count + 1));
    EXPECT_EQ(result.status, Status::max_iterations);

    const CountedProduct warm(a);
    KrylovSolveOptions options = steps(count);
    options.warm_start = random_vector(12, 3);
    EXPECT_EQ(conjugate_gradient(warm, b, options).products, count + 1);
    EXPECT_EQ(*warm.calls, count + 1);
  }
}

TEST(ConjugateGradient, ErrorStaysBelowTheBoundAndEnergyErrorFalls) {
  const int64_t n = 40;
  const double kappa = 100;
  const Tensor a = with_eigenvalues(at::linspace(1, kappa, n, at::kDouble), 5);
  const Tensor b = random_vector(n, 6);
  const Tensor exact = solve(a, b);
  const double rate = (std::sqrt(kappa) - 1) / (std::sqrt(kappa) + 1);
  double energy_before = energy_norm(a, exact);
  for (int64_t k = 1; k <= 25; ++k) {
    const Tensor error = conjugate_gradient(product_with(a), b, steps(k)).solution - exact;
    const double power = std::pow(rate, static_cast<double>(k));
    EXPECT_LE(energy_norm(a, error), 2 * power * energy_norm(a, exact)) << "k = " << k;
    EXPECT_LE(norm2(error), 2 * std::sqrt(kappa) * power * norm2(exact)) << "k = " << k;
    EXPECT_LT(energy_norm(a, error), energy_before) << "k = " << k;
    energy_before = energy_norm(a, error);
  }
}

TEST(ConjugateGradient, ReportsTheTrueResiduals) {
  const Tensor a = with_eigenvalues(at::logspace(0, 3, 30, 10, at::kDouble), 5);
  const Tensor b = random_vector(30, 6) * 1e-3;
  const LinearResult full = conjugate_gradient(product_with(a), b, steps(15));
  for (int64_t k = 0; k <= 15; ++k) {
    const Tensor v = conjugate_gradient(product_with(a), b, steps(k)).solution;
    EXPECT_NEAR(full.residuals[static_cast<size_t>(k)] / norm2(b - at::mv(a, v)), 1, 1e-8) << "k = " << k;
  }
  EXPECT_DOUBLE_EQ(full.residual(), full.residuals.back());
  EXPECT_NEAR(full.relative_residual, full.residual() / norm2(b), 1e-15);
}

TEST(ConjugateGradient, StopsAtTheFirstResidualBelowTheTolerance) {
  const Tensor a = with_eigenvalues(at::linspace(1, 50, 30, at::kDouble), 5);
  const Tensor b = random_vector(30, 6);
  const LinearResult all = conjugate_gradient(product_with(a), b, steps(30));
  const LinearResult some = conjugate_gradient(product_with(a), b, steps(30, 1e-3));
  ASSERT_EQ(some.status, Status::converged);
  ASSERT_GT(some.iterations, 2);
  for (int64_t k = 0; k < some.iterations; ++k)
    EXPECT_GT(all.residuals[static_cast<size_t>(k)], 1e-3 * norm2(b));
  EXPECT_LE(some.relative_residual, 1e-3);
  EXPECT_LE(norm2(b - at::mv(a, some.solution)), 1.0001e-3 * norm2(b));
}

TEST(ConjugateGradient, WithoutAToleranceStopsAtRoundingAndSaysConverged) {
  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor b = random_vector(6, 5);
  const LinearResult result = conjugate_gradient(product_with(a), b, steps(1000));
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_LT(result.iterations, 20);
  EXPECT_LT(relative_error(result.solution, solve(a, b)), 1e-13);
}

TEST(ConjugateGradient, NoStepsReturnTheStart) {
  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor b = random_vector(6, 5);
  const LinearResult cold = conjugate_gradient(product_with(a), b, steps(0));
  EXPECT_EQ(cold.status, Status::max_iterations);
  EXPECT_EQ(norm2(cold.solution), 0);
  EXPECT_EQ(cold.relative_residual, 1);

  KrylovSolveOptions options = steps(0);
  options.warm_start = random_vector(6, 6);
  const LinearResult warm = conjugate_gradient(product_with(a), b, options);
  EXPECT_EQ(warm.status, Status::max_iterations);
  EXPECT_TRUE(warm.solution.equal(options.warm_start));
  EXPECT_NEAR(warm.residual(), norm2(b - at::mv(a, options.warm_start)), 1e-12);
}

TEST(ConjugateGradient, WarmStartAtTheSolutionNeedsOneProduct) {
  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor b = random_vector(6, 5);
  KrylovSolveOptions options = steps(10, 1e-10);
  options.warm_start = solve(a, b);
  const LinearResult result = conjugate_gradient(product_with(a), b, options);
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_EQ(result.products, 1);
  EXPECT_EQ(result.iterations, 0);

  options.warm_start = solve(a, b) + random_vector(6, 6);
  EXPECT_LT(relative_error(conjugate_gradient(product_with(a), b, options).solution, solve(a, b)), 1e-9);
}

TEST(ConjugateGradient, DampingSolvesTheDampedSystem) {
  const Tensor a = with_eigenvalues({-0.5, 1, 2, 3}, 4);
  const Tensor damped = a + 0.7 * at::eye(4, a.options());
  const Tensor b = random_vector(4, 5);
  KrylovSolveOptions options = steps(4, 1e-12);
  options.damping = 0.7;
  const LinearResult cold = conjugate_gradient(product_with(a), b, options);
  EXPECT_EQ(cold.status, Status::converged);
  EXPECT_LT(relative_error(cold.solution, solve(damped, b)), 1e-11);
  options.warm_start = random_vector(4, 6);
  EXPECT_LT(relative_error(conjugate_gradient(product_with(a), b, options).solution, solve(damped, b)),
            1e-11);
}

TEST(ConjugateGradient, NegativeCurvatureAtTheFirstStepReturnsTheStart) {
  const Tensor a = at::diag(vector_of({1, -3}));
  const Tensor b = vector_of({1, 1});
  const LinearResult result = conjugate_gradient(product_with(a), b, steps(5));
  EXPECT_EQ(result.status, Status::negative_curvature);
  EXPECT_EQ(result.products, 1);
  EXPECT_EQ(result.iterations, 0);
  EXPECT_EQ(norm2(result.solution), 0);
  EXPECT_EQ(result.relative_residual, 1);

  KrylovSolveOptions options = steps(5);
  options.warm_start = vector_of({1, 0.25});
  EXPECT_TRUE(conjugate_gradient(product_with(-a * a), b, options).solution.equal(options.warm_start));
}

TEST(ConjugateGradient, ZeroCurvatureIsToldApart) {
  // d'Ad = 0 with Ad != 0: no semi-definite matrix does that.
  const Tensor swap = at::tensor({0., 1., 1., 0.}).to(at::kDouble).view({2, 2});
  EXPECT_EQ(conjugate_gradient(product_with(swap), vector_of({1, 0}), steps(5)).status,
            Status::negative_curvature);
  // b has a part in the null space: the second direction lies in it.
  const LinearResult singular =
      conjugate_gradient(product_with(at::diag(vector_of({1, 0}))), vector_of({1, 1}), steps(5));
  EXPECT_EQ(singular.status, Status::breakdown);
  EXPECT_TRUE(at::isfinite(singular.solution).all().item<bool>());
  // Rotated, the null direction is found only to rounding.
  const Tensor a = with_eigenvalues({0, 1, 2, 3, 4}, 8);
  const LinearResult rotated = conjugate_gradient(product_with(a), random_vector(5, 9), steps(50));
  EXPECT_TRUE(rotated.status == Status::breakdown || rotated.status == Status::negative_curvature)
      << name_of(rotated.status);
  EXPECT_LE(rotated.residual(), rotated.residuals.front());
}

TEST(ConjugateGradient, SolvesConsistentSingularSystemsDownToRounding) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double epsilon = type == at::kDouble ? 2.3e-16 : 1.2e-7;
    for (const double tolerance : {0.0, 100 * epsilon}) {
      for (uint64_t seed = 0; seed < 10; ++seed) {
        const Tensor a = with_eigenvalues({0, 0, 0, 1, 2, 3, 4}, seed).to(type);
        const Tensor b = at::mv(a, random_vector(7, seed + 9, type));
        // Left running, the residual is rounding in the null space: neither a breakdown nor a reason to
        // explode.
        const LinearResult result = conjugate_gradient(product_with(a), b, steps(50, tolerance));
        EXPECT_EQ(result.status, Status::converged) << name_of(result.status) << ", seed " << seed;
        EXPECT_LT(norm2(b - at::mv(a, result.solution)), 200 * epsilon * norm2(b));
      }
    }
  }
}

TEST(ConjugateGradient, InconsistentSingularSystemsBreakDownWithoutExploding) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Tensor a = with_eigenvalues({4, 1, 0, 0, 2, 3, 8}, seed);
    const Tensor b = random_vector(7, seed + 3);
    const LinearResult result = conjugate_gradient(product_with(a), b, steps(100));
    EXPECT_EQ(result.status, Status::breakdown) << name_of(result.status) << ", seed " << seed;
    EXPECT_LT(norm2(result.solution), 10 * norm2(b));
    EXPECT_NEAR(result.residual(), norm2(b - at::mv(a, result.solution)), 1e-12);
  }
}

TEST(ConjugateGradient, AbnormalEndsReturnTheIterateOfSmallestResidual) {
  // On a spectrum with a small negative eigenvalue the residual first rises, then curvature turns negative.
  int64_t seen = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Tensor a = with_eigenvalues({-0.05, 0.1, 1, 3, 10, 30, 100}, seed);
    const Tensor b = random_vector(7, seed + 100);
    const LinearResult result = conjugate_gradient(product_with(a), b, steps(30));
    if (result.status != Status::negative_curvature) continue;
    const double best = *std::min_element(result.residuals.begin(), result.residuals.end());
    EXPECT_DOUBLE_EQ(result.residual(), best);
    EXPECT_NEAR(norm2(b - at::mv(a, result.solution)) / best, 1, 1e-6);
    EXPECT_NEAR(result.relative_residual * norm2(b) / best, 1, 1e-12);
    if (result.residuals.back() > 1.5 * best) ++seen;
  }
  EXPECT_GE(seen, 5) << "the last iterate was the best: the case this test is for did not occur";
}

TEST(ConjugateGradient, NormalEndsReturnTheLastIterateThoughItsResidualRose) {
  const Tensor a = at::diag(vector_of({1, 100}));
  const Tensor b = vector_of({1, 0.2});
  const LinearResult result = conjugate_gradient(product_with(a), b, steps(1));
  ASSERT_GT(result.residuals[1], result.residuals[0]);
  const double step = 1.04 / 5;  // b'b / b'Ab
  EXPECT_LT(relative_error(result.solution, b * step), 1e-15);
  EXPECT_EQ(result.residual(), result.residuals[1]);
  EXPECT_EQ(result.vectors_kept, 5) << "solution, residual, direction, product, and the best before";
}

TEST(ConjugateGradient, NotFiniteProductsAreReported) {
  const Tensor a = with_eigenvalues(six_eigenvalues, 4);
  const Tensor b = random_vector(6, 5);
  for (const double poison : {not_a_number, std::numeric_limits<double>::infinity()}) {
    for (const int64_t bad : {1, 3}) {
      int64_t calls = 0;
      const auto matrix = [&](const Tensor& v) {
        Tensor product = at::mv(a, v);
        if (++calls == bad) product[2] = poison;
        return product;
      };
      const LinearResult result = conjugate_gradient(matrix, b, steps(6));
      EXPECT_EQ(result.status, Status::not_finite);
      EXPECT_EQ(result.products, bad);
      EXPECT_TRUE(at::isfinite(result.solution).all().item<bool>());
      EXPECT_EQ(result.iterations, bad - 1);
      EXPECT_EQ(norm2(result.solution) > 0, bad > 1);
    }
  }
  Tensor poisoned = b.clone();
  poisoned[0] = not_a_number;
  const CountedProduct counted(a);
  const LinearResult result = conjugate_gradient(counted, poisoned, steps(6));
  EXPECT_EQ(result.status, Status::not_finite);
  EXPECT_EQ(*counted.calls, 0);
  EXPECT_TRUE(at::isnan(result.solution).all().item<bool>()) << "a zero here would be a silent one";
}

TEST(ConjugateGradient, AProductMayReturnItsArgumentAndInputsStayAsTheyWere) {
  const Tensor b = random_vector(5, 5);
  const Tensor before = b.clone();
  const auto identity = [](const Tensor& v) { return v; };
  EXPECT_LT(relative_error(conjugate_gradient(identity, b).solution, b), 1e-15);
  KrylovSolveOptions options;
  options.damping = 1;
  options.warm_start = random_vector(5, 6);
  const Tensor start_before = options.warm_start.clone();
  EXPECT_LT(relative_error(conjugate_gradient(identity, b, options).solution, b / 2), 1e-15);
  EXPECT_TRUE(b.equal(before));
  EXPECT_TRUE(options.warm_start.equal(start_before));
}

TEST(ConjugateGradient, FollowsTheTypeAndSurvivesTheRangeOfFloat) {
  const Tensor a = with_eigenvalues(at::linspace(1, 10, 20, at::kDouble), 4);
  const Tensor single = a.to(at::kFloat);
  for (const double size : {1e-40, 1e-30, 1e-20, 1.0, 1e20, 1e30}) {
    const Tensor b = (random_vector(20, 5) * size).to(at::kFloat);
    const LinearResult result = conjugate_gradient(product_with(single), b, steps(40));
    EXPECT_EQ(result.solution.scalar_type(), at::kFloat);
    EXPECT_EQ(result.status, Status::converged) << size;
    const double allowed = size < 1e-37 ? 1e-3 : 1e-5;  // 1e-40 is below the normal floats
    EXPECT_LT(relative_error(result.solution, solve(a, b.to(at::kDouble))), allowed) << size;
  }
}

TEST(ConjugateGradient, LeavesNoGraph) {
  const Tensor b = random_vector(4, 5).requires_grad_();
  const Tensor factor = at::full({}, 2.0, at::kDouble).requires_grad_();
  const LinearResult result = conjugate_gradient([&](const Tensor& v) { return v * factor; }, b);
  EXPECT_FALSE(result.solution.requires_grad());
  EXPECT_LT(relative_error(result.solution, b.detach() / 2), 1e-15);
}

TEST(ConjugateGradient, MisuseNamesTheOptionItsValueAndTheBound) {
  const Tensor b = random_vector(4, 5);
  const auto identity = [](const Tensor& v) { return v; };
  const auto expect = [&](const Tensor& rhs, const KrylovSolveOptions& options, auto matcher) {
    EXPECT_THAT([&] { conjugate_gradient(identity, rhs, options); },
                ThrowsMessage<std::invalid_argument>(matcher));
  };
  expect(b, steps(-1), AllOf(HasSubstr("max_iterations = -1"), HasSubstr("at least 0")));
  expect(b, steps(1, -0.5), AllOf(HasSubstr("relative_tolerance = -0.5"), HasSubstr("at least 0")));
  expect(b, steps(1, not_a_number), HasSubstr("relative_tolerance = nan"));
  KrylovSolveOptions options;
  options.damping = -2;
  expect(b, options, HasSubstr("damping = -2"));
  options.damping = std::numeric_limits<double>::infinity();
  expect(b, options, HasSubstr("damping = inf"));
  options = {};
  options.warm_start = random_vector(3, 5);
  expect(b, options, AllOf(HasSubstr("warm_start"), HasSubstr("[3]"), HasSubstr("[4]")));
  options.warm_start = random_vector(4, 5, at::kFloat);
  expect(b, options, AllOf(HasSubstr("warm_start"), HasSubstr("Float"), HasSubstr("Double")));
  expect(at::zeros({2, 2}), {}, HasSubstr("[2, 2]"));
  expect(at::ones({3}, at::kLong), {}, HasSubstr("Long"));
  expect(Tensor(), {}, HasSubstr("undefined"));
  EXPECT_THAT([&] { conjugate_gradient([](const Tensor& v) { return v.narrow(0, 0, 2); }, b); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("matrix product"), HasSubstr("[2]"))));
}

}  // namespace
}  // namespace bilevel
