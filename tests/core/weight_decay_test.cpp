// Weight decay is part of g (docs/mathematics.md): it must reach the loss, the gradient, the Hessian, the
// Gauss-Newton matrix, the steps and every estimator.
#include "bilevel/core/weight_decay.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <stdexcept>

#include "bilevel/hypergradients/exact.h"
#include "bilevel/hypergradients/reverse.h"
#include "bilevel/problems/learned_rate.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

constexpr double decay = 0.37;

TEST(WeightDecay, adds_half_the_square_to_the_inner_loss_alone) {
  const Ridge ridge;
  const WithWeightDecay decayed(ridge, decay);
  const Tensor w = random_vector(20, 1), x = random_vector(20, 2);
  const Batch batch{at::arange(7)};
  for (const Batch& b : {Batch{}, batch}) {
    EXPECT_NEAR(number(decayed.inner_loss(w, x, b)),
                number(ridge.inner_loss(w, x, b)) + 0.5 * decay * number(w.dot(w)), 1e-13);
    EXPECT_EQ(number(decayed.outer_loss(w, x, b)), number(ridge.outer_loss(w, x, b)));
  }
  EXPECT_TRUE(at::equal(decayed.initial_inner(1), ridge.initial_inner(1)));
  EXPECT_TRUE(at::equal(decayed.initial_outer(1), ridge.initial_outer(1)));
  EXPECT_EQ(decayed.inner_samples(), 50);
  EXPECT_EQ(decayed.outer_samples(), 50);
}

// Its own derivatives are those of its own loss, differentiated without it: dense_at sees inner_loss alone.
TEST(WeightDecay, derivatives_are_those_of_the_decayed_loss) {
  const Ridge ridge;
  const Mlp mlp;
  for (const Problem* base : {static_cast<const Problem*>(&ridge), static_cast<const Problem*>(&mlp)}) {
    const WithWeightDecay decayed(*base, decay);
    const Tensor w = random_like(base->initial_inner(0), 1), x = random_like(base->initial_outer(0), 2);
    const Tensor v = random_like(w, 3), u = random_like(x, 4);
    const Batch batch{at::arange(7)};
    const Dense dense = dense_at(decayed, w, x, batch);
    const auto linear = decayed.linearize(w, x, batch);
    EXPECT_LT(relative_error(decayed.inner_gradient(w, x, batch), dense.gradient), 1e-13);
    EXPECT_LT(relative_error(linear->gradient(), dense.gradient), 1e-13);
    EXPECT_TRUE(
        at::equal(decayed.inner_gradient_in_outer(w, x, batch), base->inner_gradient_in_outer(w, x, batch)));
    EXPECT_LT(relative_error(decayed.outer_gradients(w, x, {}).w, dense.p), 1e-13);
    EXPECT_LT(relative_error(linear->hessian(v), dense.hessian.mv(v)), 1e-13);
    EXPECT_LT(relative_error(linear->cross(v), dense.cross.mv(v)), 1e-13);
    EXPECT_LT(relative_error(linear->cross_transposed(u), dense.cross.t().mv(u)), 1e-13);
    EXPECT_LT(relative_error(linear->hessian_and_cross(v).first, dense.hessian.mv(v)), 1e-13);
    EXPECT_LT(relative_error(linear->hessian_and_cross(v).second, dense.cross.mv(v)), 1e-13);
  }
}

TEST(WeightDecay, gauss_newton_gets_the_regularisers_hessian_too) {
  const Mlp mlp;
  const WithWeightDecay decayed(mlp, decay);
  const Tensor w = random_like(mlp.initial_inner(0), 1), x = mlp.initial_outer(0), v = random_like(w, 3);
  const Tensor expected = mlp.linearize(w, x, {})->gauss_newton(v) + decay * v;
  EXPECT_LT(relative_error(decayed.linearize(w, x, {})->gauss_newton(v), expected), 1e-14);
  // The parts sum to the loss, so that another way to the same matrix finds the decay as well.
  const auto parts = decayed.inner_parts(w, x, {});
  ASSERT_TRUE(parts.has_value());
  EXPECT_NEAR(number(parts->loss(parts->outputs) + parts->regularizer), number(decayed.inner_loss(w, x, {})),
              1e-12);
  EXPECT_FALSE(WithWeightDecay(Ridge(), decay).inner_parts(w, x, {}).has_value());
}

// An optimiser's weight decay, as PyTorch has it: gradient + decay * w.
TEST(WeightDecay, steps_are_those_of_an_optimiser_with_weight_decay) {
  const Ridge ridge;
  const WithWeightDecay decayed(ridge, decay);
  Oracle oracle(decayed);
  const Tensor x = ridge.initial_outer(0), start = random_vector(20, 1);
  InnerLoop run;
  run.options.steps = 6;
  const Trajectory inner = run_inner(oracle, x, start, run);
  Tensor w = start;
  for (int t = 0; t < 6; ++t) w = w - 0.1 * (ridge.inner_gradient(w, x, {}) + decay * w);
  EXPECT_LT(relative_error(inner.final.w, w), 1e-15);
}

TEST(WeightDecay, implicit_and_unrolled_estimators_see_it) {
  const Ridge ridge;
  const WithWeightDecay decayed(ridge, decay);
  Oracle oracle(decayed);
  const Tensor x = ridge.initial_outer(0), w = random_vector(20, 1);
  const Dense plain = dense_at(ridge, w, x);
  Trajectory here = standing_at(w);
  const Tensor exact = Exact().estimate(oracle, {.x = x, .inner = here}).value;
  const Tensor with =
      plain.direct - plain.cross.mv(solve(plain.hessian + decay * at::eye(20, doubles()), plain.p));
  const Tensor without = plain.direct - plain.cross.mv(solve(plain.hessian, plain.p));
  EXPECT_LT(relative_error(exact, with), 1e-13);
  EXPECT_GT(relative_error(exact, without), 0.01);  // a form that forgets the decay would fail

  InnerOptions options;
  options.steps = 8;
  const Tensor reverse = hypergradient_at(oracle, x, w, options, Reverse()).hypergradient.value;
  const Trajectory kept = run_all_kept(oracle, x, w, options);
  EXPECT_LT(relative_error(reverse, graph_hypergradient(decayed, x, kept, 0, false)), 1e-13);
}

TEST(WeightDecay, hands_on_what_is_learned) {
  const LearnedRate problem;
  const WithWeightDecay decayed(problem, decay);
  const Tensor x = problem.initial_outer(0);
  EXPECT_TRUE(at::equal(decayed.inner_start(x), problem.inner_start(x)));
  EXPECT_TRUE(at::equal(decayed.inner_rate(x), problem.inner_rate(x)));
  EXPECT_EQ(decayed.inner_layout(), problem.inner_layout());
  EXPECT_TRUE(decayed.inner_loss_uses_outer());
  EXPECT_FALSE(WithWeightDecay(LearnedRate({.learn_regularization = false}), decay).inner_loss_uses_outer());
  EXPECT_EQ(decayed.metrics(problem.initial_inner(0), x), problem.metrics(problem.initial_inner(0), x));
}

TEST(WeightDecay, hands_on_the_projection) {
  class NonNegative : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    void project_outer_(Tensor& x) const override { x.clamp_(0); }
  };
  const Ridge ridge;
  Tensor x = vec({-1, 2});
  WithWeightDecay(NonNegative(ridge), decay).project_outer_(x);
  EXPECT_TRUE(at::equal(x, vec({0, 2})));
}

TEST(WeightDecay, can_own_its_problem) {
  const WithWeightDecay decayed(std::make_unique<Ridge>(), decay);
  const Ridge ridge;
  const Tensor w = random_vector(20, 1), x = ridge.initial_outer(0);
  EXPECT_EQ(number(decayed.inner_loss(w, x, {})), number(WithWeightDecay(ridge, decay).inner_loss(w, x, {})));
}

TEST(WeightDecay, must_be_finite_and_not_negative) {
  const Ridge ridge;
  for (const double bad :
       {-1e-3, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT([&] { WithWeightDecay(ridge, bad); },
                ::testing::ThrowsMessage<std::invalid_argument>(::testing::HasSubstr("weight_decay = ")));
  }
  const Tensor w = random_vector(20, 1), x = ridge.initial_outer(0);
  EXPECT_TRUE(at::equal(WithWeightDecay(ridge, 0).inner_gradient(w, x, {}), ridge.inner_gradient(w, x, {})));
}

}  // namespace
}  // namespace bilevel::test
