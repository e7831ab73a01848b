#include "bilevel/problems/counterexample.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bilevel/core/autograd.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

TEST(Counterexample, LossesByHand) {
  const Counterexample problem(doubles(), 3);
  EXPECT_DOUBLE_EQ(value(problem.inner_loss(vector({2}), vector({0.5}), {})), 0.5 * 2.25);
  EXPECT_DOUBLE_EQ(value(problem.outer_loss(vector({2}), vector({0.5}), {})), 2 + 0.5 * 6.25);
}

// The truncated hypergradient, by its own definition: p times the last K steps' derivative, each -rate C
// after contractions by 1 - rate. It is zero at target / (2 - (1 - rate)^K), and not at the solution target
// / 2.
TEST(Counterexample, TruncationIsStationaryAtTheWrongPoint) {
  const double rate = 0.5;
  const Counterexample problem(doubles(), 1);
  auto truncated = [&](double at_x, int kept) {
    const Tensor x = vector({at_x});
    const Tensor w = descend(problem, problem.initial_inner(0), x, 200, rate);
    const auto outer = autograd::outer_gradients(problem, w, x, {});
    const auto linear = problem.linearize(w, x, {});
    Tensor adjoint = outer.w;
    Tensor h = outer.x;
    for (int k = 0; k < kept; ++k) {
      h = h - rate * linear->cross(adjoint);
      adjoint = adjoint - rate * linear->hessian(adjoint);
    }
    return value(h[0]);
  };
  for (const int kept : {1, 2, 5}) {
    EXPECT_NEAR(truncated(1 / (2 - std::pow(1 - rate, kept)), kept), 0, 1e-14) << kept;
    EXPECT_LT(truncated(0.5, kept), -0.01) << kept;
  }
  EXPECT_NEAR(truncated(0.5, 200), 0, 1e-14);
}

}  // namespace
}  // namespace bilevel::testing
