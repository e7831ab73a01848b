#include "bilevel/problems/quadratic.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bilevel/core/autograd.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

QuadraticOptions small() { return {.dimension = 3, .outer_dimension = 4, .samples = 12, .seed = 2}; }

TEST(Quadratic, LossesByHand) {
  const Quadratic problem(small());
  const Tensor w = vector({0.5, -1, 2});
  const Tensor x = vector({1, 0.25, -0.5, 3});
  double inner = 0;
  double outer = 0;
  double minibatch = 0;
  for (int64_t i = 0; i < 12; ++i) {
    double residual = -value(problem.target()[i]);
    double outer_residual = -value(problem.outer_target()[i]);
    for (int64_t j = 0; j < 3; ++j) {
      residual += value(problem.inner_matrix()[i][j]) * value(w[j]);
      outer_residual += value(problem.outer_matrix()[i][j]) * value(w[j]);
    }
    for (int64_t j = 0; j < 4; ++j) residual += value(problem.cross_matrix()[i][j]) * value(x[j]);
    inner += residual * residual;
    outer += outer_residual * outer_residual;
    if (i == 2 || i == 7) minibatch += residual * residual;
  }
  EXPECT_NEAR(value(problem.inner_loss(w, x, {})), inner, 1e-12 * inner);
  EXPECT_NEAR(value(problem.outer_loss(w, x, {})), outer, 1e-12 * outer);
  const Batch batch{at::tensor({2L, 7L}), 0};
  EXPECT_NEAR(value(problem.inner_loss(w, x, batch)), 6 * minibatch, 1e-12 * 6 * minibatch);
}

// Two levels of different sizes: a transposed cross matrix would not fit.
TEST(Quadratic, CrossProductsHaveTheSizesOfTheirLevels) {
  const Quadratic problem(small());
  const Point point = generic_point(problem);
  for (const Batch& batch : {Batch{}, Batch{at::tensor({0L, 3L, 5L}), 0}}) {
    const auto own = problem.linearize(point.w, point.x, batch);
    const auto reference = autograd::linearize(problem, point.w, point.x, batch);
    const Tensor v = random_like(point.w, 1);
    const Tensor u = random_like(point.x, 2);
    EXPECT_EQ(own->cross(v).numel(), 4);
    EXPECT_EQ(own->cross_transposed(u).numel(), 3);
    EXPECT_LT(relative_error(own->cross(v), reference->cross(v)), 1e-12);
    EXPECT_LT(relative_error(own->cross_transposed(u), reference->cross_transposed(u)), 1e-12);
    EXPECT_LT(relative_error(own->hessian(v), reference->hessian(v)), 1e-12);
    EXPECT_LT(relative_error(own->gradient(), reference->gradient()), 1e-12);
  }
}

TEST(Quadratic, SpectrumIsThatOfThePaper) {  // docs/mathematics.md
  const Quadratic problem;
  const Tensor spectrum =
      eigenvalues(dense_hessian(problem, problem.initial_inner(0), problem.initial_outer(0)));
  EXPECT_NEAR(value(spectrum[0]), 1.6e3, 0.05e3);
  EXPECT_NEAR(value(spectrum[-1]), 2.7e4, 0.05e4);
  EXPECT_NEAR(1 - 2e-5 * value(spectrum[0]), 0.968, 0.001);
}

TEST(Quadratic, DataIsThatOfThePaper) {
  const Quadratic problem;
  EXPECT_EQ(problem.inner_samples(), 10'000);
  EXPECT_EQ(problem.outer_samples(), 10'000);
  for (const Tensor& matrix : {problem.inner_matrix(), problem.cross_matrix(), problem.outer_matrix()}) {
    EXPECT_EQ(matrix.sizes(), (std::vector<int64_t>{10'000, 5}));
    EXPECT_GE(value(matrix.min()), 0);
    EXPECT_LT(value(matrix.max()), 1);
    EXPECT_NEAR(value(matrix.mean()), 0.5, 0.005);
    EXPECT_NEAR(value(matrix.var()), 1.0 / 12, 0.002);
  }
  // The least squares fit of each level leaves the noise.
  auto remaining_variance = [](const Tensor& matrix, const Tensor& target) {
    const Tensor normal_matrix = matrix.t().mm(matrix);
    const Tensor fit =
        at::cholesky_solve(matrix.t().mv(target).unsqueeze(1), at::linalg_cholesky(normal_matrix));
    return value((matrix.mm(fit).squeeze(1) - target).square().mean());
  };
  const Tensor both = at::cat({problem.inner_matrix(), problem.cross_matrix()}, 1);
  EXPECT_NEAR(remaining_variance(both, problem.target()), 0.1, 0.006);
  EXPECT_NEAR(remaining_variance(problem.outer_matrix(), problem.outer_target()), 0.1, 0.006);
}

TEST(Quadratic, SolutionIsStationaryAndWhereDescentEnds) {
  const Quadratic problem;
  const Tensor x = problem.initial_outer(0);
  const Tensor solution = problem.solution(x);
  const Tensor start = problem.initial_inner(0);
  EXPECT_LT(value(autograd::inner_gradient(problem, solution, x, {}).norm()),
            1e-13 * value(problem.inner_gradient(start, x, {}).norm()) * 10);
  EXPECT_LT(relative_error(descend(problem, start, x, 1200, 2e-5), solution), 1e-13);
}

TEST(Quadratic, HypergradientIsTheDifferenceOfTheSolvedObjective) {
  for (const QuadraticOptions& options : {QuadraticOptions{}, small()}) {
    const Quadratic problem(options);
    const Tensor x = problem.initial_outer(0);
    const Tensor u = random_like(x, 3);
    const Tensor expected = difference(
        [&](const Tensor& at_x) { return problem.outer_loss(problem.solution(at_x), at_x, {}); }, x, u, 1e-3);
    EXPECT_LT(relative_error(problem.hypergradient(x).dot(u), expected),
              1e-9);  // a quadratic: no truncation error
  }
}

TEST(Quadratic, AnySize) {
  const Quadratic problem({.dimension = 40, .samples = 400});
  const Tensor x = problem.initial_outer(1);
  EXPECT_EQ(x.numel(), 40);
  EXPECT_LT(value(problem.inner_gradient(problem.solution(x), x, {}).norm()), 1e-9);
}

TEST(Quadratic, RefusesBadOptions) {
  EXPECT_THAT([] { Quadratic({.dimension = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("dimension = 0")));
  EXPECT_THAT([] { Quadratic({.outer_dimension = -1}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("outer_dimension = -1")));
  EXPECT_THAT([] { Quadratic({.dimension = 5, .samples = 4}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("samples = 4")));
  EXPECT_THAT([] { Quadratic({.noise_variance = -0.1}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("noise_variance = -0.1")));
}

}  // namespace
}  // namespace bilevel::testing
