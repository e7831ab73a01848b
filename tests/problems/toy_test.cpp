#include "bilevel/problems/toy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bilevel/core/autograd.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

TEST(Toy, LossesByHand) {
  const Toy toy(doubles());
  const Tensor w = vector({2, 2});
  const Tensor x = vector({1, -1});
  EXPECT_DOUBLE_EQ(value(toy.inner_loss(w, x, {})), 0.5 * (1 * 1 + 0.5 * 9));
  EXPECT_DOUBLE_EQ(value(toy.outer_loss(w, x, {})), 8 + 20 * std::sin(2.0) * std::sin(2.0));
  const Toy interfering(doubles(), true);
  EXPECT_DOUBLE_EQ(value(interfering.inner_loss(w, x, {})), value(toy.inner_loss(w, x, {})));
  EXPECT_DOUBLE_EQ(value(interfering.outer_loss(w, x, {})), value(toy.outer_loss(w, x, {})) + 5);
}

TEST(Toy, StartsAsInThePaper) {
  const Toy toy(doubles());
  EXPECT_TRUE(at::equal(toy.initial_inner(7), vector({2, 2})));
  EXPECT_TRUE(at::equal(toy.initial_outer(7), vector({1, 1})));
}

TEST(Toy, IteratesFollowTheClosedForm) {
  const Toy toy(doubles());
  const Tensor start = toy.initial_inner(0);
  const Tensor x = vector({0.7, -1.3});
  const Tensor contraction = at::pow(1 - 0.1 * vector({1, 0.5}), 100.0);
  EXPECT_LT(relative_error(descend(toy, start, x, 100, 0.1), contraction * start + (1 - contraction) * x),
            1e-13);
}

// docs/mathematics.md, "Identities": with 5|x - (1,0)|^2 the unrolled gradient vanishes at this x.
TEST(Toy, UnrolledGradientOfTheInterferingToyVanishesWhereMathSays) {
  const Toy toy(doubles(), true);
  const Tensor x = vector({0.32670, -0.00816});
  const Tensor w = descend(toy, toy.initial_inner(0), x, 100, 0.1);
  const auto outer = autograd::outer_gradients(toy, w, x, {});
  const Tensor contraction = at::pow(1 - 0.1 * vector({1, 0.5}), 100.0);
  const Tensor unrolled = outer.x + (1 - contraction) * outer.w;
  EXPECT_LT(value(unrolled.norm()), 1e-3);  // x is given to five digits, and the curvature there is about 30
  EXPECT_GT(value(outer.x.norm()), 1);
}

}  // namespace
}  // namespace bilevel::testing
