// The closed forms of the heads against automatic differentiation of their losses.
#include "bilevel/meta/head_problem.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "bilevel/core/random.h"
#include "tests/meta/small_tasks.h"

namespace bilevel::meta {
namespace {

class Heads : public testing::TestWithParam<bool> {
 protected:
  Heads()
      : tasks_(GetParam() ? small_tasks(3, {4}) : small_regression(3)),
        problem_(tasks_, 4, GetParam() ? 3 : 1, {.ridge = 0.03}, at::kDouble),
        w_(Random(5).normal({problem_.initial_inner(0).size(0)}, at::kDouble)),
        z_(problem_.initial_outer(6)),
        v_(Random(8).normal({w_.size(0)}, at::kDouble)) {}
  TaskBatch tasks_;
  HeadProblem problem_;
  Tensor w_, z_, v_;
};

TEST_P(Heads, gradients_are_those_of_the_losses) {
  EXPECT_LT(
      relative_distance(problem_.inner_gradient(w_, z_, {}), problem_.Problem::inner_gradient(w_, z_, {})),
      1e-12);
  const OuterGradients closed = problem_.outer_gradients(w_, z_, {});
  const OuterGradients automatic = problem_.Problem::outer_gradients(w_, z_, {});
  EXPECT_LT(relative_distance(closed.loss, automatic.loss), 1e-12);
  EXPECT_LT(relative_distance(closed.w, automatic.w), 1e-12);
  EXPECT_LT(relative_distance(closed.x, automatic.x), 1e-12);
}

TEST_P(Heads, products_are_those_of_the_losses) {
  const auto closed = problem_.linearize(w_, z_, {});
  const auto automatic = problem_.Problem::linearize(w_, z_, {});
  const Tensor u = Random(9).normal({z_.size(0)}, at::kDouble);
  EXPECT_LT(relative_distance(closed->gradient(), automatic->gradient()), 1e-12);
  EXPECT_LT(relative_distance(closed->hessian(v_), automatic->hessian(v_)), 1e-12);
  EXPECT_LT(relative_distance(closed->cross(v_), automatic->cross(v_)), 1e-12);
  EXPECT_LT(relative_distance(closed->cross_transposed(u), automatic->cross_transposed(u)), 1e-12);
  const auto [hessian, cross] = closed->hessian_and_cross(v_);
  EXPECT_LT(relative_distance(hessian, automatic->hessian(v_)), 1e-12);
  EXPECT_LT(relative_distance(cross, automatic->cross(v_)), 1e-12);
}
INSTANTIATE_TEST_SUITE_P(ClassesAndNumbers, Heads, testing::Bool());

TEST(HeadProblem, a_learned_start_is_every_tasks_start) {
  const HeadProblem problem(small_tasks(3, {4}), 4, 3, {.ridge = 0, .learned_start = true}, at::kDouble);
  const Tensor z = problem.initial_outer(1);
  const Tensor start = problem.inner_start(z).view({3, 15});
  EXPECT_TRUE(start[0].equal(start[2]));
  EXPECT_TRUE(start[0].equal(z.narrow(0, z.size(0) - 15, 15)));
}

}  // namespace
}  // namespace bilevel::meta
