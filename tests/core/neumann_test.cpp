// The Neumann series and the fixed point against explicit powers, and what they say when they go wrong.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "tests/core/matrices.h"

namespace bilevel {
namespace {

using matrices::CountedProduct;
using matrices::norm2;
using matrices::random_vector;
using matrices::relative_error;
using matrices::solve;
using matrices::vector_of;
using matrices::with_eigenvalues;
using ::testing::ElementsAre;

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
  EXPECT_TRUE(matrices::all_finite(huge.solution));
  EXPECT_EQ(huge.status, Status::diverged);
}

TEST(NeumannSeries, NegativeCurvatureIsReportedButRoundingIsNot) {
  const Tensor b = random_vector(6, 3);
  const Tensor indefinite = with_eigenvalues({-0.5, 0.5, 1, 1.2, 1.5, 2}, 2);
  EXPECT_EQ(neumann_series(indexed(indefinite), b, {30, 0.5}).status, Status::negative_curvature);
  const Tensor semidefinite = with_eigenvalues({0, 0, 0, 1, 1.5, 2}, 2);
  EXPECT_EQ(neumann_series(indexed(semidefinite), b, {300, 0.5}).status, Status::ok);
  // Ten times more terms than floats have room for: what is left of the summands is underflow.
  const Tensor definite = with_eigenvalues({0.9, 1, 1.1}, 2).to(at::kFloat);
  EXPECT_EQ(neumann_series(indexed(definite), random_vector(3, 4, at::kFloat), {200, 0.9}).status,
            Status::ok);
  EXPECT_EQ(neumann_series(indexed(semidefinite.to(at::kFloat)), b.to(at::kFloat), {300, 0.5}).status,
            Status::ok);
}

TEST(NeumannSeries, NotFiniteZeroAndAliasing) {
  const Tensor b = random_vector(4, 3);
  const Tensor before = b.clone();
  const IndexedProduct poison = [](const Tensor& v, int64_t k) {
    return k == 2 ? v * matrices::not_a_number : v;
  };
  const LinearResult poisoned = neumann_series(poison, b, {5, 0.5});
  EXPECT_EQ(poisoned.status, Status::not_finite);
  EXPECT_FALSE(matrices::all_finite(poisoned.solution))
      << "a NaN must not be replaced by something that looks well";
  const LinearResult unbounded = neumann_series(poison, b * matrices::infinity, {3, 0.5});
  EXPECT_EQ(unbounded.status, Status::not_finite);
  EXPECT_EQ(unbounded.products, 0);
  EXPECT_TRUE(at::isnan(unbounded.solution).all().item<bool>());

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
  // Reached is reached, whatever was met on the way: b does not excite the negative direction, the start did
  // not help.
  const Tensor saddle = at::diag(vector_of({-1, 1}));
  const LinearResult lucky =
      fixed_point(indexed(saddle), vector_of({-1, 0}), fixed_steps(9, 0.5, 1e-8, vector_of({1, 0})));
  EXPECT_EQ(lucky.status, Status::converged);
}

TEST(FixedPoint, ReportsWhatWentWrong) {
  const Tensor b = random_vector(3, 3);
  EXPECT_EQ(fixed_point(indexed(with_eigenvalues({1, 2, 10}, 2)), b, fixed_steps(20, 0.3)).status,
            Status::diverged);
  EXPECT_EQ(fixed_point(indexed(with_eigenvalues({-1, 2, 3}, 2)), b, fixed_steps(40, 0.3)).status,
            Status::negative_curvature);
  EXPECT_EQ(fixed_point(indexed(with_eigenvalues({0, 2, 3}, 2)), b, fixed_steps(40, 0.3)).status, Status::ok);
  const IndexedProduct poison = [](const Tensor& v, int64_t k) {
    return k == 1 ? v * matrices::not_a_number : v;
  };
  for (const double tolerance : {0.0, 1e-12}) {
    const LinearResult result = fixed_point(poison, b, fixed_steps(6, 0.3, tolerance));
    EXPECT_EQ(result.status, Status::not_finite) << tolerance;
  }
}

}  // namespace
}  // namespace bilevel
