// The solver of the inner problem against closed forms: w*(x) of ridge and of a quadratic, the tolerance that
// was asked for, and an honest status where it cannot be kept.
#include "bilevel/core/solve_inner.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <stdexcept>

#include "bilevel/core/problem.h"
#include "bilevel/problems/quadratic.h"
#include "bilevel/problems/registry.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double gradient_at(const Problem& problem, const Tensor& w, const Tensor& x) {
  return length(problem.inner_gradient(w, x, {}));
}

TEST(SolveInner, FindsTheClosedFormOfRidgeByBothWaysToAStep) {
  const Ridge ridge(RidgeOptions{.features = 30, .seed = 4});
  const Tensor x = random_like(ridge.initial_outer(0), 1);
  for (const int64_t direct_limit : {1000, 0}) {
    Oracle oracle(ridge);
    const SolvedInner solved = solve_inner(oracle, x, ridge.initial_inner(0), {.direct_limit = direct_limit});
    EXPECT_EQ(solved.status, Status::converged);
    EXPECT_TRUE(solved.solved);
    EXPECT_LT(relative_error(solved.w, ridge.solution(x)), 1e-12) << direct_limit;
    EXPECT_DOUBLE_EQ(solved.gradient_norm, gradient_at(ridge, solved.w, x));
    EXPECT_LE(solved.products, oracle.counts().hessian);
    EXPECT_GT(solved.products, 0);
  }
}

TEST(SolveInner, FindsTheClosedFormOfTheQuadraticFromFarAway) {
  const Quadratic quadratic(QuadraticOptions{.dimension = 5, .samples = 20, .seed = 2});
  const Tensor x = quadratic.initial_outer(0);
  Oracle oracle(quadratic);
  const SolvedInner solved = solve_inner(oracle, x, 1e6 * random_like(quadratic.initial_inner(0), 3));
  EXPECT_EQ(solved.status, Status::converged);
  EXPECT_LT(relative_error(solved.w, quadratic.solution(x)), 1e-10);
}

// Softmax regression has no closed form, but its gradient has, and the tolerance is on that.
TEST(SolveInner, StopsAtTheToleranceAndNotMuchBelow) {
  const NamedProblem named = make_problem("hyper-cleaning");
  const Problem& problem = *named.problem;
  const Tensor x = random_like(problem.initial_outer(0), 5), start = problem.initial_inner(0);
  const double first = gradient_at(problem, start, x);
  int64_t last_products = 0;
  for (const double tolerance : {1e-2, 1e-4, 1e-8}) {
    Oracle oracle(problem);
    const SolvedInner solved =
        solve_inner(oracle, x, start, {.relative_tolerance = tolerance, .direct_limit = 0});
    EXPECT_TRUE(solved.solved);
    EXPECT_LE(solved.gradient_norm, tolerance * first);
    EXPECT_GT(solved.products, last_products);
    last_products = solved.products;
  }
}

// The scale makes solutions from several starts equally precise: one from nearby is not solved further.
TEST(SolveInner, AGivenScaleIsWhatTheToleranceIsRelativeTo) {
  const NamedProblem named = make_problem("hyper-cleaning");
  const Problem& problem = *named.problem;
  const Tensor x = problem.initial_outer(0), start = problem.initial_inner(0);
  const double scale = gradient_at(problem, start, x);
  Oracle oracle(problem);
  const Tensor near = solve_inner(oracle, x, start, {.relative_tolerance = 1e-6}).w;
  const SolvedInner at_once =
      solve_inner(oracle, x, near, {.relative_tolerance = 1e-6, .gradient_scale = scale});
  EXPECT_EQ(at_once.iterations, 0);
  EXPECT_EQ(at_once.products, 0);
  EXPECT_TRUE(at_once.w.equal(near));
  EXPECT_TRUE(at_once.solved);
  EXPECT_GT(solve_inner(oracle, x, near, {.relative_tolerance = 1e-3}).iterations, 0);  // of its own start
}

TEST(SolveInner, FloatsAreSolvedToTheirRounding) {
  const Ridge ridge(RidgeOptions{.features = 30, .seed = 4, .tensors = floats()});
  const Tensor x = ridge.initial_outer(0);
  Oracle oracle(ridge);
  // 1e-12 is beyond the type: what rounding leaves counts as solved.
  const SolvedInner solved =
      solve_inner(oracle, x, ridge.initial_inner(0), {.relative_tolerance = 1e-12, .direct_limit = 0});
  EXPECT_TRUE(solved.solved) << solved.gradient_norm;
  EXPECT_LT(relative_error(solved.w, ridge.solution(x)), 1e-5);
}

TEST(SolveInner, LimitsThatRunOutAreTold) {
  const NamedProblem named = make_problem("hyper-cleaning");
  const Problem& problem = *named.problem;
  const Tensor x = problem.initial_outer(0), start = problem.initial_inner(0);
  for (const InnerSolveOptions& options :
       {InnerSolveOptions{.iterations = 1, .relative_tolerance = 1e-8, .direct_limit = 0},
        InnerSolveOptions{.products = 3, .relative_tolerance = 1e-8, .direct_limit = 0}}) {
    Oracle oracle(problem);
    const SolvedInner solved = solve_inner(oracle, x, start, options);
    EXPECT_FALSE(solved.solved);
    EXPECT_EQ(solved.status, Status::max_iterations);
    EXPECT_LT(solved.gradient_norm, gradient_at(problem, start, x));  // what was done is not lost
    EXPECT_DOUBLE_EQ(solved.gradient_norm, gradient_at(problem, solved.w, x));
  }
}

FunctionProblem scalar_problem(const std::function<Tensor(const Tensor&)>& g) {
  const FunctionProblem::Loss inner = [g](const Tensor& w, const Tensor& x, const Batch&) {
    return (g(w) + 0 * x).sum();
  };
  const FunctionProblem::Loss outer = [](const Tensor& w, const Tensor&, const Batch&) { return w.sum(); };
  return {inner, outer, vec({1}), vec({0})};
}

TEST(SolveInner, NegativeCurvatureAtTheStartIsDampedAway) {
  // A double well: w = 0.1 is on the hill between its minima at -1 and 1.
  const FunctionProblem well = scalar_problem([](const Tensor& w) { return (w * w - 1).pow(2); });
  for (const int64_t direct_limit : {1000, 0}) {
    Oracle oracle(well);
    const SolvedInner solved = solve_inner(oracle, vec({0}), vec({0.1}), {.direct_limit = direct_limit});
    EXPECT_TRUE(solved.solved);
    EXPECT_NEAR(number(solved.w.abs()), 1, 1e-9);
  }
}

TEST(SolveInner, AProblemWithoutASolutionIsNotCalledSolved) {
  const FunctionProblem line = scalar_problem([](const Tensor& w) { return w; });
  const FunctionProblem broken = scalar_problem([](const Tensor& w) { return w.log() - 2 * w.log(); });
  Oracle of_line(line), of_broken(broken);
  const SolvedInner unbounded = solve_inner(of_line, vec({0}), vec({1}), {.relative_tolerance = 1e-8});
  EXPECT_FALSE(unbounded.solved);
  EXPECT_NE(unbounded.status, Status::converged);
  // A loss that is no number stops the run, here as everywhere.
  EXPECT_THAT([&] { solve_inner(of_broken, vec({0}), vec({0}), {.relative_tolerance = 1e-8}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("inner_loss returned")));
}

TEST(SolveInner, RefusesOptionsOutOfBoundsByName) {
  const Ridge ridge(RidgeOptions{});
  const auto with = [&](const InnerSolveOptions& options) {
    return [&ridge, options] {
      Oracle oracle(ridge);
      solve_inner(oracle, ridge.initial_outer(0), ridge.initial_inner(0), options);
    };
  };
  EXPECT_THAT(with({.iterations = -1}), ThrowsMessage<std::invalid_argument>(HasSubstr("iterations")));
  EXPECT_THAT(with({.products = -1}), ThrowsMessage<std::invalid_argument>(HasSubstr("products")));
  EXPECT_THAT(with({.relative_tolerance = -1e-8}),
              ThrowsMessage<std::invalid_argument>(HasSubstr("relative_tolerance")));
  EXPECT_THAT(with({.gradient_scale = std::numeric_limits<double>::quiet_NaN()}),
              ThrowsMessage<std::invalid_argument>(HasSubstr("gradient_scale")));
  EXPECT_THAT(with({.direct_limit = -1}), ThrowsMessage<std::invalid_argument>(HasSubstr("direct_limit")));
}

}  // namespace
}  // namespace bilevel::test
