// The inner loop: what it keeps, that every step can be taken again to the same bits, where it says it
// failed.
#include "bilevel/core/trajectory.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "bilevel/core/errors.h"
#include "bilevel/problems/learned_rate.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/quadratic.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

InnerLoop run_of(const std::string& optimizer, int64_t steps, double rate = 0.1) {
  InnerLoop run;
  run.options.optimizer = optimizer;
  run.options.steps = steps;
  run.options.rate = rate;
  return run;
}

// Minibatches of five, every one with its own seed.
InnerBatches minibatches(int64_t population) {
  return [population](int64_t step) {
    return Batch{Random(static_cast<uint64_t>(step)).permutation(population).narrow(0, 0, 5),
                 static_cast<uint64_t>(step)};
  };
}

void expect_same_bits(const InnerState& a, const InnerState& b) {
  EXPECT_TRUE(at::equal(a.w, b.w));
  EXPECT_EQ(a.step, b.step);
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (size_t i = 0; i < a.buffers.size(); ++i) EXPECT_TRUE(at::equal(a.buffers[i], b.buffers[i])) << i;
}

class EveryTrajectory : public ::testing::TestWithParam<std::string> {
 protected:
  const Mlp problem;
  const Tensor x = problem.initial_outer(0) + 0.3 * random_like(problem.initial_outer(0), 1);
  const Tensor start = problem.initial_inner(0);
  Oracle oracle{problem};

  InnerLoop run(int64_t steps) const {
    InnerLoop result = run_of(GetParam(), steps);
    result.options.schedule = {ScheduleKind::cosine, 20, 0.1};
    result.batches = minibatches(problem.inner_samples());
    return result;
  }
};

TEST_P(EveryTrajectory, is_the_steps_of_the_optimiser_on_its_batches) {
  InnerLoop asked = run(9);
  asked.keep = {7, 0, 3, 3};  // in any order, twice if need be
  const Trajectory inner = run_inner(oracle, x, start, asked);
  const auto optimizer = make_inner_optimizer(asked.options);
  InnerState state = optimizer->start(start);
  for (int64_t t = 0; t < 9; ++t) {
    const bool kept = t == 0 || t == 3 || t == 7;
    EXPECT_EQ(inner.kept.count(t), kept ? 1U : 0U);
    if (kept) expect_same_bits(inner.kept.at(t), state);
    const Tensor gradient = problem.inner_gradient(state.w, x, asked.batches(t));
    state = optimizer->step(state, gradient, {0.1 * asked.options.schedule.factor(t), {}});
  }
  expect_same_bits(inner.final, state);
  EXPECT_EQ(inner.steps(), 9);
  EXPECT_EQ(inner.bytes_kept(), 3 * 136 * 8 * (1 + optimizer->buffer_count()));
  EXPECT_DOUBLE_EQ(inner.gradient_norm, length(problem.inner_gradient(state.w, x, {})));
  EXPECT_DOUBLE_EQ(inner.last_rate(), 0.1 * asked.options.schedule.factor(8));
  EXPECT_EQ(inner.counts.inner_gradient, 10);  // the measured gradient included
  EXPECT_EQ(inner.counts.samples, 9 * 5 + 40);
  EXPECT_EQ(inner.counts.outer_gradient + inner.counts.hessian + inner.counts.cross, 0);
}

TEST_P(EveryTrajectory, every_step_can_be_replayed_bit_for_bit) {
  InnerLoop asked = run(9);
  for (int64_t t = 0; t < 9; ++t) asked.keep.push_back(t);
  const Trajectory inner = run_inner(oracle, x, start, asked);
  for (int64_t t = 0; t < 9; ++t) {
    const InnerState again = replay_step(oracle, x, inner, t, inner.kept.at(t));
    expect_same_bits(again, t < 8 ? inner.kept.at(t + 1) : inner.final);
  }
  const Trajectory twice = run_inner(oracle, x, start, asked);
  expect_same_bits(twice.final, inner.final);
}

// Momenta, bias correction and schedule go on where they stopped.
TEST_P(EveryTrajectory, continued_is_one_longer_run_bit_for_bit) {
  InnerLoop whole = run(11), first = run(4), second = run(7);
  const InnerBatches batches = whole.batches;
  second.batches = [&](int64_t step) { return batches(step + 4); };
  second.keep = {0, 2};
  const Trajectory in_one = run_inner(oracle, x, start, whole);
  const Trajectory begun = run_inner(oracle, x, start, first);
  const Trajectory ended = continue_inner(oracle, x, begun.final, second);
  expect_same_bits(ended.final, in_one.final);
  expect_same_bits(ended.kept.at(0), begun.final);
  EXPECT_EQ(ended.kept.at(2).step, 6);
  EXPECT_DOUBLE_EQ(ended.last_rate(), in_one.last_rate());
  EXPECT_EQ(ended.gradient_norm, in_one.gradient_norm);
  EXPECT_EQ(ended.counts.inner_gradient, 8);
}

INSTANTIATE_TEST_SUITE_P(Names, EveryTrajectory, ::testing::ValuesIn(inner_optimizer_names()),
                         [](const auto& row) { return test_name(row.param); });

TEST(Trajectory, no_steps_are_legal) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor start = random_vector(20, 1);
  const Trajectory inner = run_inner(oracle, ridge.initial_outer(0), start, run_of("adam", 0));
  EXPECT_TRUE(at::equal(inner.final.w, start));
  EXPECT_EQ(inner.steps(), 0);
  EXPECT_EQ(inner.counts.inner_gradient, 1);
  EXPECT_DOUBLE_EQ(inner.last_rate(), 0.1);
}

TEST(Trajectory, the_gradient_is_measured_only_if_asked) {
  const Ridge ridge;
  Oracle oracle(ridge);
  InnerLoop run = run_of("gd", 5);
  run.measure_gradient = false;
  const Trajectory inner = run_inner(oracle, ridge.initial_outer(0), ridge.initial_inner(0), run);
  EXPECT_EQ(inner.gradient_norm, -1);
  EXPECT_EQ(inner.counts.inner_gradient, 5);
}

TEST(Trajectory, holds_no_graph_of_the_callers_x) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0).requires_grad_(true);
  InnerLoop run = run_of("gd", 3);
  run.keep = {1};
  const Trajectory inner = run_inner(oracle, x, ridge.initial_inner(0).requires_grad_(true), run);
  EXPECT_FALSE(inner.final.w.requires_grad() || inner.kept.at(1).w.requires_grad());
  const LearnedRate learned;
  Oracle other(learned);
  const Trajectory from_x = run_inner(other, learned.initial_outer(0).requires_grad_(true), Tensor(), run);
  EXPECT_FALSE(from_x.final.w.requires_grad() || from_x.learned_rate.requires_grad());
}

TEST(Trajectory, start_and_rate_that_belong_to_x_are_used) {
  const LearnedRate problem;
  Oracle oracle(problem);
  const Tensor x = problem.initial_outer(3).clone();
  x[0] = std::log(0.2);
  x[1] = std::log(0.05);
  InnerLoop run = run_of("gd", 3, 99);  // the optimiser's own rate does not count
  run.options.schedule = {ScheduleKind::inverse_sqrt, 0, 0};
  run.keep = {0};
  const Trajectory inner = run_inner(oracle, x, at::zeros({35}, doubles()), run);
  EXPECT_TRUE(inner.start_is_learned);
  EXPECT_TRUE(at::equal(inner.kept.at(0).w, problem.inner_start(x)));
  const Tensor rates = at::cat({at::full({20}, 0.2, doubles()), at::full({15}, 0.05, doubles())});
  Tensor w = problem.inner_start(x);
  for (int t = 0; t < 3; ++t) w = w - rates / std::sqrt(t + 1.0) * problem.inner_gradient(w, x, {});
  EXPECT_LT(relative_error(inner.final.w, w), 1e-15);
  EXPECT_NEAR(inner.last_rate(), 0.05 / std::sqrt(3.0), 1e-15);  // the smallest: safe in a series
  const Trajectory onward = continue_inner(oracle, x, inner.final, run);
  EXPECT_FALSE(onward.start_is_learned);
  EXPECT_TRUE(at::equal(onward.kept.at(0).w, inner.final.w));
}

TEST(Trajectory, refuses_states_and_steps_that_do_not_belong) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0), start = ridge.initial_inner(0);
  for (const int64_t bad : {-1, 3}) {
    InnerLoop run = run_of("gd", 3);
    run.keep = {bad};
    EXPECT_THAT([&] { run_inner(oracle, x, start, run); },
                ThrowsMessage<std::invalid_argument>(
                    AllOf(HasSubstr("step " + std::to_string(bad)), HasSubstr("3"))));
  }
  const Trajectory plain = run_inner(oracle, x, start, run_of("gd", 3));
  EXPECT_THAT([&] { continue_inner(oracle, x, plain.final, run_of("adam", 3)); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("0 buffers"), HasSubstr("adam needs 2"))));
  EXPECT_THROW(run_inner(oracle, x, start, run_of("gd", -1)), std::invalid_argument);
  EXPECT_THROW(run_inner(oracle, x, Tensor(), run_of("gd", 1)), std::invalid_argument);
  EXPECT_THROW(run_inner(oracle, Tensor(), start, run_of("gd", 1)), std::invalid_argument);
  EXPECT_THROW(continue_inner(oracle, Tensor(), plain.final, run_of("gd", 1)), std::invalid_argument);
  EXPECT_THROW(continue_inner(oracle, x, InnerState{}, run_of("gd", 1)), std::invalid_argument);
  EXPECT_THROW(run_inner(oracle, x, start.to(at::kFloat), run_of("gd", 1)), std::invalid_argument);
}

// What a message must name: the step at which w stops being finite when the steps are taken by hand.
auto names_step(int64_t step, int64_t of) {
  return ThrowsMessage<NotFiniteError>(
      HasSubstr("left the finite numbers at step " + std::to_string(step) + " of " + std::to_string(of)));
}

TEST(Trajectory, a_diverging_closed_form_names_the_first_bad_step) {
  const Quadratic problem({.samples = 100});
  Oracle oracle(problem);
  const Tensor x = problem.initial_outer(0);
  const double rate = 1e3;
  Tensor w = problem.initial_inner(0);
  int64_t steps = 0;
  while (w.isfinite().all().item<bool>()) {
    w = w - rate * problem.inner_gradient(w, x, {});
    ++steps;
  }
  ASSERT_GT(steps, 10);
  const InnerLoop run = run_of("gd", steps + 20, rate);
  EXPECT_THAT([&] { run_inner(oracle, x, problem.initial_inner(0), run); }, names_step(steps, steps + 20));
  EXPECT_EQ(run_inner(oracle, x, problem.initial_inner(0), run_of("gd", steps - 1, rate)).steps(), steps - 1);
}

TEST(Trajectory, a_loss_that_is_not_finite_names_its_step) {
  // The loss itself is NaN on the batch with seed 4, which is that of the fifth step.
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch& batch) {
        return w.dot(w) * x.sum() * (batch.seed == 4 ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      },
      [](const Tensor& w, const Tensor&, const Batch&) { return w.sum(); }, vec({1, 2}), vec({1}));
  Oracle oracle(problem);
  InnerLoop run = run_of("gd", 9);
  run.batches = [](int64_t step) { return Batch{{}, static_cast<uint64_t>(step)}; };
  EXPECT_THAT([&] { run_inner(oracle, problem.initial_outer(0), problem.initial_inner(0), run); },
              AllOf(names_step(5, 9), ThrowsMessage<NotFiniteError>(HasSubstr("inner_loss returned nan"))));
}

// The loss is finite where its gradient is not: the third step makes w a NaN, and it is that step which is to
// blame, not the fourth, whose loss only shows it.
TEST(Trajectory, a_gradient_that_is_not_finite_names_the_step_that_used_it) {
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch& batch) {
        return 0.5 * w.dot(w) * x.sum() +
               (batch.seed == 2 ? (w - w.detach()).square().sum().sqrt() : 0 * w.sum());
      },
      [](const Tensor& w, const Tensor&, const Batch&) { return w.sum(); }, vec({1, 2}), vec({1}));
  Oracle oracle(problem);
  InnerLoop run = run_of("gd", 9);
  run.batches = [](int64_t step) { return Batch{{}, static_cast<uint64_t>(step)}; };
  EXPECT_THAT([&] { run_inner(oracle, problem.initial_outer(0), problem.initial_inner(0), run); },
              AllOf(names_step(3, 9), ThrowsMessage<NotFiniteError>(HasSubstr("w became NaN or infinite"))));
  // At the very end, where no further loss would show it.
  run.options.steps = 3;
  EXPECT_THAT([&] { run_inner(oracle, problem.initial_outer(0), problem.initial_inner(0), run); },
              names_step(3, 3));
}

}  // namespace
}  // namespace bilevel::test
