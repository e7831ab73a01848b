#include "bilevel/problems/ridge.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bilevel/core/autograd.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Ridge, LossesByHand) {
  const Ridge problem({.features = 2, .samples = 3, .valid_samples = 2});
  const Tensor w = vector({1.5, -2});
  const Tensor x = vector({0.5, -1});
  auto squares = [&](const Tensor& matrix, const Tensor& target, const std::vector<int64_t>& rows) {
    double sum = 0;
    for (const int64_t i : rows) {
      const double residual = 1.5 * value(matrix[i][0]) - 2 * value(matrix[i][1]) - value(target[i]);
      sum += residual * residual;
    }
    return sum;
  };
  const double penalty = 0.5 * (std::exp(0.5) * 2.25 + std::exp(-1) * 4);
  EXPECT_NEAR(value(problem.inner_loss(w, x, {})),
              squares(problem.matrix(), problem.target(), {0, 1, 2}) / 6 + penalty, 1e-12);
  EXPECT_NEAR(value(problem.inner_loss(w, x, {at::tensor({2L}), 0})),
              squares(problem.matrix(), problem.target(), {2}) / 2 + penalty, 1e-12);
  EXPECT_NEAR(value(problem.outer_loss(w, x, {})),
              squares(problem.valid_matrix(), problem.valid_target(), {0, 1}) / 4, 1e-12);
}

TEST(Ridge, SolutionIsStationaryAndWhereDescentEnds) {
  const Ridge problem;
  const Tensor x = generic_point(problem).x;
  const Tensor solution = problem.solution(x);
  EXPECT_LT(value(autograd::inner_gradient(problem, solution, x, {}).norm()), 1e-13);
  EXPECT_LT(relative_error(descend(problem, problem.initial_inner(0), x, 1500, 0.3), solution), 1e-13);
}

TEST(Ridge, HypergradientIsTheDifferenceOfTheSolvedObjective) {
  const Ridge problem;
  const Tensor x = generic_point(problem).x;
  const Tensor u = random_like(x, 3);
  const Tensor expected = difference(
      [&](const Tensor& at_x) { return problem.outer_loss(problem.solution(at_x), at_x, {}); }, x, u, 1e-4);
  EXPECT_LT(relative_error(problem.hypergradient(x).dot(u), expected), 1e-7);
}

TEST(Ridge, ConditionNumberIsModerate) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Ridge problem({.seed = seed});
    const Tensor spectrum =
        eigenvalues(dense_hessian(problem, problem.initial_inner(0), problem.initial_outer(0)));
    const double condition = value(spectrum[-1] / spectrum[0]);
    EXPECT_GT(condition, 10) << seed;
    EXPECT_LT(condition, 30) << seed;
  }
}

TEST(Ridge, RefusesBadOptions) {
  EXPECT_THAT([] { Ridge({.features = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("features = 0")));
  EXPECT_THAT([] { Ridge({.samples = -1}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("samples = -1")));
  EXPECT_THAT([] { Ridge({.initial_log = INFINITY}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("initial_log = inf")));
  EXPECT_THAT([] { Ridge({.noise = -1}); }, ThrowsMessage<std::invalid_argument>(HasSubstr("noise = -1")));
}

}  // namespace
}  // namespace bilevel::testing
