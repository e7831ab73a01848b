// MINRES, the Neumann series, the fixed point and the direct solve against dense closed forms. Conjugate
// gradients have a file of their own.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "tests/core/matrices.h"

namespace bilevel {
namespace {

using matrices::CountedProduct;
using matrices::norm2;
using matrices::product_with;
using matrices::random_vector;
using matrices::relative_error;
using matrices::solve;
using matrices::vector_of;
using matrices::with_eigenvalues;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const double not_a_number = std::numeric_limits<double>::quiet_NaN();
const double infinity = std::numeric_limits<double>::infinity();

bool all_finite(const Tensor& v) { return at::isfinite(v).all().item<bool>(); }

TEST(Status, EveryOneHasAName) {
  for (int i = 0; i <= static_cast<int>(Status::not_finite); ++i) {
    EXPECT_FALSE(name_of(static_cast<Status>(i)).empty());
  }
  EXPECT_EQ(name_of(Status::negative_curvature), "negative_curvature");
  EXPECT_THROW(name_of(static_cast<Status>(99)), std::invalid_argument);
}

TEST(LinearResult, BeginsPessimistic) {
  const LinearResult result;
  EXPECT_EQ(result.status, Status::not_run);
  EXPECT_EQ(result.residual(), -1);
  EXPECT_EQ(result.relative_residual, -1);
}

// ---- MINRES ----

MinresOptions minres_steps(int64_t count, double tolerance = 0) {
  MinresOptions options;
  options.max_iterations = count;
  options.relative_tolerance = tolerance;
  return options;
}

TEST(Minres, AResidualThatStandsStillForAStepIsNoBreakdown) {
  // b'Ab = 0: the first step cannot move, the second one solves.
  const LinearResult mirror =
      minres(product_with(at::diag(vector_of({1, -1}))), vector_of({1, 1}), minres_steps(5));
  EXPECT_EQ(mirror.status, Status::converged);
  EXPECT_LT(relative_error(mirror.solution, vector_of({1, -1})), 1e-14);
  const Tensor a = with_eigenvalues(at::linspace(-1, 1, 40, at::kDouble), 3);
  const Tensor b = random_vector(40, 4);
  const LinearResult result = minres(product_with(a), b, minres_steps(100, 1e-10));
  EXPECT_EQ(result.status, Status::converged);
  EXPECT_LT(relative_error(result.solution, solve(a, b)), 1e-7);
}

TEST(Minres, SolvesIndefiniteSystemsWithinAsManyStepsAsUnknowns) {
  for (const int64_t n : {1, 2, 5, 12}) {
    const Tensor a = with_eigenvalues(at::linspace(-3, 4.3, n, at::kDouble), 7);
    const Tensor b = random_vector(n, 3);
    const LinearResult result = minres(product_with(a), b, minres_steps(n + 1, 1e-12));
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
  const LinearResult all = minres(product_with(a), b, minres_steps(7));
  for (int64_t k = 1; k <= 7; ++k) {
    power = at::mv(a, power);
    images.push_back(power / norm2(power));
    const Tensor q = std::get<0>(at::linalg_qr(at::stack(images, 1)));
    const double smallest = norm2(b - at::mv(q, at::mv(q.t(), b)));
    const LinearResult result = minres(product_with(a), b, minres_steps(k));
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
    EXPECT_EQ(minres(cold, b, minres_steps(count)).products, count);
    EXPECT_EQ(*cold.calls, count);
    const CountedProduct warm(a);
    MinresOptions options = minres_steps(count);
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
  MinresOptions options = minres_steps(8, 1e-12);
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
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double epsilon = type == at::kDouble ? 2.3e-16 : 1.2e-7;
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Tensor eigenvalues =
          at::cat({at::zeros({20}, at::kDouble), at::linspace(-2, 8, 80, at::kDouble)});
      const Tensor a = with_eigenvalues(eigenvalues, seed).to(type);
      const Tensor b = at::mv(a, random_vector(100, seed + 3, type));
      // Left running far beyond convergence, which is where textbook MINRES walks away again.
      const LinearResult result = minres(product_with(a), b, minres_steps(500));
      EXPECT_EQ(result.status, Status::converged)
          << name_of(result.status) << " at " << result.relative_residual;
      EXPECT_LT(norm2(b - at::mv(a, result.solution)), 100 * epsilon * norm2(b));
    }
  }
}

TEST(Minres, InconsistentSystemsEndInALeastSquaresSolution) {
  const auto check = [](const Tensor& eigenvalues, uint64_t seed, at::ScalarType type) {
    const Tensor a = with_eigenvalues(eigenvalues, seed).to(type);
    const int64_t n = a.size(0);
    const Tensor b = random_vector(n, seed + 3, type);
    const LinearResult result = minres(product_with(a), b, minres_steps(10 * n));
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
  const LinearResult stuck = minres(product_with(projector), vector_of({0, 3}), minres_steps(5));
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
             minres_steps(5));
  EXPECT_EQ(poisoned.status, Status::not_finite);
  EXPECT_EQ(poisoned.iterations, 2);
  EXPECT_TRUE(all_finite(poisoned.solution));
  EXPECT_EQ(minres(identity, b * not_a_number).status, Status::not_finite);

  for (const double size : {1e-40, 1e-30, 1.0, 1e30}) {
    const Tensor single = (b * size).to(at::kFloat);
    const LinearResult result = minres(product_with(a.to(at::kFloat)), single, minres_steps(20, 1e-6));
    EXPECT_EQ(result.solution.scalar_type(), at::kFloat);
    EXPECT_EQ(result.status, Status::converged) << size;
    EXPECT_LT(relative_error(result.solution, solve(a, single.to(at::kDouble))), size < 1e-37 ? 1e-3 : 1e-5)
        << size;
  }
}

// ---- Neumann series ----

IndexedProduct indexed(const Tensor& a) {
  return [a](const Tensor& v, int64_t) { return at::mv(a, v); };
}

TEST(NeumannSeries, IsTheSumOfPowersByExactlyAsManyProducts) {
  const Tensor a = with_eigenvalues({0.2, 0.5, 1, 1.5, 1.9}, 2);
  const Tensor b = random_vector(5, 3);
  const double rate = 0.6;
  const Tensor contraction = at::eye(5, a.options()) - rate * a;
  Tensor sum = at::zeros_like(b);
  Tensor power = b;
  for (int64_t terms = 0; terms <= 12; ++terms) {
    const double residual_before = norm2(b - at::mv(a, rate * sum));
    sum = sum + power;
    power = at::mv(contraction, power);
    const CountedProduct counted(a);
    const LinearResult result = neumann_series(counted, b, {terms, rate});
    EXPECT_LT(relative_error(result.solution, rate * sum), 1e-14) << terms;
    EXPECT_EQ(*counted.calls, terms);
    EXPECT_EQ(result.products, terms);
    EXPECT_EQ(result.iterations, terms);
    EXPECT_EQ(result.status, Status::ok);
    ASSERT_EQ(result.residuals.size(), static_cast<size_t>(terms + 1));
    // That of the sum without its last summand, and so above the whole sum's.
    EXPECT_NEAR(result.residual(), residual_before, 1e-13) << terms;
    EXPECT_NEAR(result.relative_residual, residual_before / norm2(b), 1e-13);
    EXPECT_LE(norm2(b - at::mv(a, result.solution)), result.residual());
  }
}

TEST(NeumannSeries, ConvergesToTheSolutionAtTheRateOfTheBound) {
  const double smallest = 0.2, rate = 0.5;
  const Tensor a = with_eigenvalues({smallest, 0.5, 1, 1.5, 2}, 2);
  const Tensor b = random_vector(5, 3);
  const Tensor exact = solve(a, b);
  for (const int64_t terms : {0, 5, 50, 200}) {
    const double error = norm2(neumann_series(indexed(a), b, {terms, rate}).solution - exact);
    const double bound = std::pow(1 - rate * smallest, static_cast<double>(terms + 1)) * norm2(b) / smallest;
    EXPECT_LE(error, bound + 1e-13) << terms;
  }
}

TEST(NeumannSeriesBugs, Bug3ScalesTheLastTermInsteadOfTheSum) {
  const Tensor a = with_eigenvalues({0.5, 1, 1.5}, 2);
  const Tensor b = random_vector(3, 3);
  const double rate = 0.5;
  const auto solves = [&](const Tensor& v) { return relative_error(v, solve(a, b)) < 1e-6; };
  EXPECT_TRUE(solves(neumann_series(indexed(a), b, {100, rate}).solution));
  Tensor last = b, sum = at::zeros_like(b);
  for (int64_t k = 0; k < 100; ++k) {
    sum = sum + last;
    last = last - rate * at::mv(a, last);
  }
  EXPECT_FALSE(solves(rate * last + sum));
  EXPECT_TRUE(solves(rate * (last + sum)));
}

TEST(NeumannSeries, TellsTheProductWhichOneItIs) {
  // Independent minibatches: each product has its own matrix.
  std::vector<Tensor> batches;
  for (uint64_t k = 0; k < 4; ++k) batches.push_back(with_eigenvalues({0.5, 1, 1.5}, k));
  std::vector<int64_t> asked;
  const IndexedProduct matrix = [&](const Tensor& v, int64_t k) {
    asked.push_back(k);
    return at::mv(batches[static_cast<size_t>(k)], v);
  };
  const Tensor b = random_vector(3, 9);
  const double rate = 0.4;
  Tensor term = b, sum = b;
  for (const Tensor& batch : batches) {
    term = term - rate * at::mv(batch, term);
    sum = sum + term;
  }
  EXPECT_LT(relative_error(neumann_series(matrix, b, {4, rate}).solution, rate * sum), 1e-14);
  EXPECT_THAT(asked, ElementsAre(0, 1, 2, 3));
}

TEST(NeumannSeries, SaysWhenTheRateIsTooLarge) {
  const Tensor a = with_eigenvalues({0.1, 1, 10}, 2);
  const Tensor b = random_vector(3, 3);
  EXPECT_EQ(neumann_series(indexed(a), b, {30, 0.19}).status, Status::ok);
  EXPECT_EQ(neumann_series(indexed(a), b, {30, 0.21}).status, Status::diverged);
  // Growing, though still below |b|: the dangerous component is small at first.
  const Tensor diagonal = at::diag(vector_of({1, 10}));
  const LinearResult early = neumann_series(indexed(diagonal), vector_of({1, 1e-3}), {8, 0.3});
  EXPECT_LT(early.residual(), norm2(vector_of({1, 1e-3})));
  EXPECT_EQ(early.status, Status::diverged);
  // Norms that overflow in float while the vectors do not.
  const LinearResult huge =
      neumann_series(indexed(diagonal.to(at::kFloat)), at::ones({2}, at::kFloat), {25, 1.0});
  EXPECT_TRUE(all_finite(huge.solution));
  EXPECT_EQ(huge.status, Status::diverged);
}

TEST(NeumannSeries, NegativeCurvatureIsReportedButRoundingIsNot) {
  const Tensor b = random_vector(6, 3);
  const Tensor indefinite = with_eigenvalues({-0.5, 0.5, 1, 1.2, 1.5, 2}, 2);
  EXPECT_EQ(neumann_series(indexed(indefinite), b, {30, 0.5}).status, Status::negative_curvature);
  const Tensor semidefinite = with_eigenvalues({0, 0, 0, 1, 1.5, 2}, 2);
  EXPECT_EQ(neumann_series(indexed(semidefinite), b, {300, 0.5}).status, Status::ok);
  EXPECT_EQ(neumann_series(indexed(semidefinite.to(at::kFloat)), b.to(at::kFloat), {300, 0.5}).status,
            Status::ok);
}

TEST(NeumannSeries, NotFiniteZeroAndAliasing) {
  const Tensor b = random_vector(4, 3);
  const Tensor before = b.clone();
  const IndexedProduct poison = [](const Tensor& v, int64_t k) { return k == 2 ? v * not_a_number : v; };
  const LinearResult poisoned = neumann_series(poison, b, {5, 0.5});
  EXPECT_EQ(poisoned.status, Status::not_finite);
  EXPECT_FALSE(all_finite(poisoned.solution)) << "a NaN must not be replaced by something that looks well";
  EXPECT_EQ(neumann_series(poison, b * infinity, {0, 0.5}).status, Status::not_finite);

  const IndexedProduct identity = [](const Tensor& v, int64_t) { return v; };
  EXPECT_LT(relative_error(neumann_series(identity, b, {3, 0.5}).solution, b * (1 - std::pow(0.5, 4))),
            1e-15);
  EXPECT_TRUE(b.equal(before));

  const LinearResult zero = neumann_series(identity, at::zeros({4}, at::kDouble), {3, 0.5});
  EXPECT_EQ(norm2(zero.solution), 0);
  EXPECT_EQ(zero.status, Status::ok);
  EXPECT_EQ(zero.relative_residual, 0);
  EXPECT_EQ(zero.products, 3);

  const Tensor tiny = at::full({4}, 1e-30, at::kFloat);
  const LinearResult small = neumann_series(identity, tiny, {3, 0.5});
  EXPECT_LT(relative_error(small.solution, tiny * (1 - std::pow(0.5, 4))), 1e-6);
  EXPECT_NEAR(small.relative_residual, 0.125, 1e-6);
}

// ---- Fixed point ----

FixedPointOptions fixed_steps(int64_t count, double rate, double tolerance = 0, Tensor start = {}) {
  return {count, rate, tolerance, std::move(start)};
}

TEST(FixedPoint, FromZeroIsTheNeumannSeriesWithOneTermLess) {
  const Tensor a = with_eigenvalues({0.2, 0.5, 1, 1.5, 1.9}, 2);
  const Tensor b = random_vector(5, 3);
  for (const int64_t count : {1, 2, 7, 20}) {
    const CountedProduct counted(a);
    const LinearResult result = fixed_point(counted, b, fixed_steps(count, 0.6));
    const LinearResult series = neumann_series(indexed(a), b, {count - 1, 0.6});
    EXPECT_LT(relative_error(result.solution, series.solution), 1e-14) << count;
    EXPECT_EQ(*counted.calls, count - 1);
    EXPECT_EQ(result.products, count - 1);
    EXPECT_EQ(result.iterations, count);
    EXPECT_EQ(result.status, Status::ok);
    EXPECT_NEAR(result.relative_residual, series.relative_residual, 1e-14);
  }
}

TEST(FixedPoint, WarmStartedTakesAProductAStep) {
  const Tensor a = with_eigenvalues({0.5, 1, 1.5}, 2);
  const Tensor b = random_vector(3, 3);
  const Tensor start = random_vector(3, 4);
  const Tensor start_before = start.clone();
  Tensor v = start;
  for (int k = 0; k < 5; ++k) v = v - 0.4 * (at::mv(a, v) - b);
  const CountedProduct counted(a);
  const LinearResult result = fixed_point(counted, b, fixed_steps(5, 0.4, 0, start));
  EXPECT_LT(relative_error(result.solution, v), 1e-14);
  EXPECT_EQ(*counted.calls, 5);
  EXPECT_EQ(result.residuals.size(), 5U);
  EXPECT_TRUE(start.equal(start_before));
}

TEST(FixedPoint, NoStepsReturnTheStart) {
  const CountedProduct identity([](const Tensor& v) { return v; });
  const Tensor b = random_vector(3, 3);
  const Tensor start = random_vector(3, 4);
  const LinearResult warm = fixed_point(identity, b, fixed_steps(0, 0.4, 0, start));
  EXPECT_TRUE(warm.solution.equal(start));
  EXPECT_EQ(warm.relative_residual, -1) << "nothing measured it";
  const LinearResult cold = fixed_point(identity, b, fixed_steps(0, 0.4));
  EXPECT_EQ(norm2(cold.solution), 0);
  EXPECT_EQ(cold.relative_residual, 1);
  EXPECT_EQ(*identity.calls, 0);
}

TEST(FixedPoint, StopsAtTheToleranceOrSaysThatItDidNot) {
  const Tensor a = with_eigenvalues({0.5, 1, 1.5}, 2);
  const Tensor b = random_vector(3, 3);
  const LinearResult enough = fixed_point(indexed(a), b, fixed_steps(1000, 0.5, 1e-8));
  EXPECT_EQ(enough.status, Status::converged);
  EXPECT_LT(enough.iterations, 100);
  EXPECT_LE(norm2(b - at::mv(a, enough.solution)), 1.001e-8 * norm2(b));
  EXPECT_NEAR(enough.residual(), norm2(b - at::mv(a, enough.solution)), 1e-12);
  EXPECT_EQ(fixed_point(indexed(a), b, fixed_steps(3, 0.5, 1e-8)).status, Status::max_iterations);
}

TEST(FixedPoint, ReportsWhatWentWrong) {
  const Tensor b = random_vector(3, 3);
  EXPECT_EQ(fixed_point(indexed(with_eigenvalues({1, 2, 10}, 2)), b, fixed_steps(20, 0.3)).status,
            Status::diverged);
  EXPECT_EQ(fixed_point(indexed(with_eigenvalues({-1, 2, 3}, 2)), b, fixed_steps(40, 0.3)).status,
            Status::negative_curvature);
  EXPECT_EQ(fixed_point(indexed(with_eigenvalues({0, 2, 3}, 2)), b, fixed_steps(40, 0.3)).status, Status::ok);
  const IndexedProduct poison = [](const Tensor& v, int64_t k) { return k == 1 ? v * not_a_number : v; };
  for (const double tolerance : {0.0, 1e-12}) {
    const LinearResult result = fixed_point(poison, b, fixed_steps(6, 0.3, tolerance));
    EXPECT_EQ(result.status, Status::not_finite) << tolerance;
  }
}

// ---- Direct ----

TEST(DirectSolve, SolvesAndSaysWhatKindOfMatrixItWas) {
  const Tensor b = random_vector(5, 3);
  const Tensor definite = with_eigenvalues({1, 2, 3, 4, 500}, 2);
  const Tensor indefinite = with_eigenvalues({-1, 2, 3, 4, 5}, 2);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double allowed = type == at::kDouble ? 1e-12 : 1e-4;
    const CountedProduct counted(definite.to(type));
    const LinearResult good = direct_solve(counted, b.to(type));
    EXPECT_EQ(good.status, Status::converged);
    EXPECT_EQ(*counted.calls, 5);
    EXPECT_EQ(good.products, 5);
    EXPECT_EQ(good.solution.scalar_type(), type);
    EXPECT_LT(relative_error(good.solution, solve(definite, b)), allowed);
    EXPECT_LT(good.relative_residual, allowed);
    const LinearResult saddle = direct_solve(product_with(indefinite.to(type)), b.to(type));
    EXPECT_EQ(saddle.status, Status::negative_curvature);
    EXPECT_LT(relative_error(saddle.solution, solve(indefinite, b)), allowed);
    EXPECT_LT(saddle.residual(), allowed * norm2(b));
  }
}

TEST(DirectSolve, SingularMatricesGetTheLeastSquaresSolutionOfSmallestNorm) {
  const Tensor b = random_vector(5, 3);
  for (const std::vector<double>& eigenvalues :
       {std::vector<double>{0, 2, 3, 4, 5}, std::vector<double>{-2, 0, 0, 4, 5}}) {
    const Tensor a = with_eigenvalues(eigenvalues, 2);
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      const LinearResult result = direct_solve(product_with(a.to(type)), b.to(type));
      EXPECT_EQ(result.status, Status::breakdown);
      const Tensor pseudo = at::mv(at::linalg_pinv(a, 1e-6, true), b);
      EXPECT_LT(relative_error(result.solution, pseudo), type == at::kDouble ? 1e-12 : 1e-5);
    }
  }
  const LinearResult zero = direct_solve([](const Tensor& v) { return at::zeros_like(v); }, b);
  EXPECT_EQ(zero.status, Status::breakdown);
  EXPECT_EQ(zero.relative_residual, 1);
}

TEST(DirectSolve, IllConditionedFloatIsNotCalledSingular) {
  const Tensor a = with_eigenvalues(at::logspace(-5, 0, 100, 10, at::kDouble), 2);
  EXPECT_EQ(direct_solve(product_with(a.to(at::kFloat)), random_vector(100, 3, at::kFloat)).status,
            Status::converged);
}

TEST(DirectSolve, DampingLimitNotFiniteAndScalars) {
  const Tensor a = with_eigenvalues({-1, 2, 3}, 2);
  const Tensor b = random_vector(3, 3);
  DirectOptions options;
  options.damping = 1.5;
  const LinearResult damped = direct_solve(product_with(a), b, options);
  EXPECT_EQ(damped.status, Status::converged);
  EXPECT_LT(relative_error(damped.solution, solve(a + 1.5 * at::eye(3, a.options()), b)), 1e-12);

  EXPECT_EQ(direct_solve([](const Tensor& v) { return v * not_a_number; }, b).status, Status::not_finite);
  EXPECT_EQ(direct_solve([](const Tensor& v) { return v; }, b * infinity).status, Status::not_finite);
  EXPECT_LT(relative_error(direct_solve([](const Tensor& v) { return v; }, b).solution, b), 1e-15);
  const LinearResult scalar = direct_solve([](const Tensor& v) { return 4 * v; }, vector_of({8}));
  EXPECT_DOUBLE_EQ(scalar.solution[0].item<double>(), 2);
  EXPECT_EQ(direct_solve(product_with(a), at::zeros({3}, at::kDouble)).relative_residual, 0);

  options.limit = 2;
  EXPECT_THAT([&] { direct_solve(product_with(a), b, options); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("3 unknowns"), HasSubstr("limit = 2"))));
}

TEST(Assemble, IsTheMatrixSymmetrised) {
  const Tensor a = Random(3).normal({4, 4}, at::kDouble);
  EXPECT_LT(norm2((assemble(product_with(a), 4, a.options()) - (a + a.t()) / 2).view({-1})), 1e-15);
  EXPECT_TRUE(assemble([](const Tensor& v) { return v; }, 3, at::kFloat).equal(at::eye(3, at::kFloat)));
  EXPECT_THROW(assemble(product_with(a), 0, a.options()), std::invalid_argument);
  EXPECT_THROW(assemble(product_with(a), 4, at::kLong), std::invalid_argument);
}

TEST(LinearSolve, MisuseNamesTheOptionItsValueAndTheBound) {
  const Tensor b = random_vector(4, 5);
  const IndexedProduct identity = [](const Tensor& v, int64_t) { return v; };
  const MatrixProduct plain = [](const Tensor& v) { return v; };
  const auto expect = [](auto call, const std::string& text) {
    EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  expect([&] { minres(plain, b, minres_steps(-3)); }, "max_iterations = -3 must be at least 0");
  expect([&] { minres(plain, b, minres_steps(3, infinity)); }, "relative_tolerance = inf must be finite");
  MinresOptions wrong;
  wrong.warm_start = at::zeros({5}, at::kDouble);
  expect([&] { minres(plain, b, wrong); }, "warm_start is [5]");
  wrong = {};
  wrong.damping = not_a_number;
  expect([&] { minres(plain, b, wrong); }, "damping = nan");
  expect([&] { neumann_series(identity, b, {-1, 0.1}); }, "terms = -1 must be at least 0");
  expect([&] { neumann_series(identity, b, {1, 0.0}); }, "rate = 0 must be finite and above 0");
  expect([&] { neumann_series(identity, b, {1, not_a_number}); }, "rate = nan");
  expect([&] { neumann_series(identity, b.view({2, 2}), {1, 0.1}); }, "shape [2, 2]");
  expect([&] { fixed_point(identity, b, fixed_steps(-1, 0.1)); }, "steps = -1");
  expect([&] { fixed_point(identity, b, fixed_steps(1, -0.1)); }, "rate = -0.1");
  expect([&] { fixed_point(identity, b, fixed_steps(1, 0.1, -1)); }, "relative_tolerance = -1");
  expect([&] { fixed_point(identity, b, fixed_steps(1, 0.1, 0, at::zeros({2}))); }, "warm_start is [2]");
  expect([&] { direct_solve(plain, b.to(at::kHalf)); }, "Half must be Float or Double");
  DirectOptions direct;
  direct.damping = -1;
  expect([&] { direct_solve(plain, b, direct); }, "damping = -1");
  direct = {};
  direct.limit = 0;
  expect([&] { direct_solve(plain, b, direct); }, "limit = 0");
}

}  // namespace
}  // namespace bilevel
