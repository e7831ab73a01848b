// FSLA and the single loops beside it: Algorithm 1 line by line on the very samples, with dense derivatives.
#include "bilevel/algorithms/storm.h"

#include <gmock/gmock.h>

#include <cmath>

#include "bilevel/algorithms/fsla.h"
#include "bilevel/algorithms/single_loop.h"
#include "bilevel/algorithms/storm_double_loop.h"
#include "tests/algorithms/sampled.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double delta = 2e-3, tau = sampled_rate, beta = 0.8 * sampled_rate, eta = 0.6;

StormOptions small_storm() {
  StormOptions storm;
  storm.inner_rate = tau;
  storm.momentum_decay = eta;
  storm.outer.rate = delta;
  return storm;
}
FslaOptions small_fsla() {
  FslaOptions options;
  options.storm = small_storm();
  options.linear_rate = beta;
  return options;
}
SingleLoopOptions small_single(const std::string& solver) {
  SingleLoopOptions options;
  options.storm = small_storm();
  options.solver = solver;
  options.terms = 4;
  options.linear_rate = beta;
  return options;
}

// One iteration by hand, from the state before it and the samples it read; `linear` gives v_{k+1}.
struct ByHand {
  Tensor x, w, v, d;
};
using Linear = std::function<Tensor(const SampledRun& run, const ByHand& next, double fall)>;
ByHand by_hand(const SampledRun& run, const Linear& linear) {
  const auto& calls = run.calls();
  const bool first = run.before.iteration == 0;
  const double fall = 1 / std::sqrt(static_cast<double>(run.before.iteration) + 1);
  const Tensor &x = run.before.x, &w = run.before.inner.w, &v = run.before.v;
  const Tensor d =
      first ? run.at(w, x, {}, calls.outer_gradient.at(0)).direct : run.before.memory.at("momentum");
  ByHand next;
  next.x = x - delta * fall * d;
  next.w = w - tau * fall * run.at(w, next.x, calls.inner_gradient.at(0)).gradient;
  next.v = linear(run, next, fall);
  const size_t offset = first ? 1 : 0;  // outer samples: (d_0,) xi_2, xi_4 at the new point, xi_4 at the old
  const Batch &xi4 = calls.outer_gradient.at(offset + 1), &xi5 = calls.cross.at(0);
  EXPECT_EQ(xi4.seed, calls.outer_gradient.at(offset + 2).seed);  // one sample for both points
  EXPECT_EQ(xi5.seed, calls.cross.at(1).seed);
  const Dense newer = run.at(next.w, next.x, xi5, xi4), older = run.at(w, x, xi5, xi4);
  next.d =
      newer.direct - newer.cross.mv(next.v) + (1 - eta * fall) * (d - (older.direct - older.cross.mv(v)));
  return next;
}
const Batch& linear_sample(const SampledRun& run) {
  return run.calls().outer_gradient.at(run.before.iteration == 0 ? 1 : 0);
}

void expect_iterations_by_hand(const Algorithm& algorithm, const Linear& linear, size_t products,
                               size_t hessian_samples) {
  SampledRun run(algorithm);
  for (int iteration = 0; iteration < 5; ++iteration) {
    const IterationSummary summary = run.step();
    const ByHand expected = by_hand(run, linear);
    EXPECT_LT(relative_error(run.state.x, expected.x), 1e-12) << iteration;
    EXPECT_LT(relative_error(run.state.inner.w, expected.w), 1e-12) << iteration;
    EXPECT_LT(relative_error(run.state.v, expected.v), 1e-11) << iteration;
    EXPECT_LT(relative_error(run.state.memory.at("momentum"), expected.d), 1e-11) << iteration;
    EXPECT_TRUE(summary.direction.equal(run.state.memory.at("momentum")));
    const auto& calls = run.calls();
    EXPECT_EQ(calls.hessian.size(), products);
    const size_t first = iteration == 0 ? 1 : 0;
    // Five samples, but for a series' own and the first gradient's.
    EXPECT_EQ(different({calls.inner_gradient, calls.outer_gradient, calls.hessian, calls.cross}),
              4 + hessian_samples + first);
  }
}

Linear one_step_at(bool before) {
  return [before](const SampledRun& run, const ByHand& next, double fall) {
    const Tensor& w = before ? run.before.inner.w : next.w;
    const Dense at = run.at(w, next.x, run.calls().hessian.at(0), linear_sample(run));
    return run.before.v - beta * fall * (at.hessian.mv(run.before.v) - at.p);
  };
}

TEST(Fsla, is_algorithm_1_line_by_line) {
  expect_iterations_by_hand(Fsla(small_fsla()), one_step_at(true), 1, 1);
}
TEST(Fsla, can_move_v_at_the_new_w_as_equation_10_prints) {
  FslaOptions options = small_fsla();
  options.v_at = "after";
  expect_iterations_by_hand(Fsla(options), one_step_at(false), 1, 1);
}

TEST(SingleLoop, neumann_takes_a_new_series_with_its_own_samples) {
  const Linear series = [](const SampledRun& run, const ByHand& next, double) {
    Tensor r = run.at(next.w, next.x, {}, linear_sample(run)).p, sum = r;
    for (const Batch& b : run.calls().hessian) {
      r = r - beta * run.at(next.w, next.x, b).hessian.mv(r);
      sum = sum + r;
    }
    return beta * sum;
  };
  expect_iterations_by_hand(SingleLoop(small_single("neumann")), series, 4, 4);
}

TEST(SingleLoop, cg_solves_on_one_sample_from_zero) {
  const Linear exact = [](const SampledRun& run, const ByHand& next, double) {
    const Dense at = run.at(next.w, next.x, run.calls().hessian.at(0), linear_sample(run));
    return solve(at.hessian, at.p);  // three dimensions, three steps
  };
  SingleLoopOptions options = small_single("cg");
  options.terms = 3;
  expect_iterations_by_hand(SingleLoop(options), exact, 3, 1);
}

// g = x w^2 / 2 has negative curvature at the first x alone: the momentum holds hypergradients of it.
TEST(StormDoubleLoop, reports_the_worst_of_its_solves) {
  const auto inner = [](const Tensor& w, const Tensor& x, const Batch&) {
    return (x * w.square()).sum() / 2;
  };
  const auto outer = [](const Tensor& w, const Tensor& x, const Batch&) {
    return (w - 1).square().sum() / 2 - 3 * x.sum();
  };
  const FunctionProblem problem(inner, outer, vec({0.5}), vec({-1}));
  StormDoubleLoopOptions options;
  options.inner = {.steps = 1, .rate = 0.1};
  options.method = "cg";
  options.outer.rate = 1;
  const StormDoubleLoop loop(options);
  Oracle oracle(problem);
  Streams streams(1, 1, 1);
  AlgorithmState state = loop.init(oracle, vec({-1}), vec({0.5}));
  EXPECT_EQ(loop.step(oracle, state, streams).status, Status::negative_curvature);
  ASSERT_GT(number(state.x), 0);
  // From here on both points have positive curvature.
  EXPECT_EQ(loop.step(oracle, state, streams).status, Status::converged);
}

// Two steps and their derivative by hand, on one new sample at both points, from the first w each time.
TEST(StormDoubleLoop, back_propagates_at_both_points_on_one_sample) {
  StormDoubleLoopOptions options;
  options.inner = {.steps = 2, .rate = tau};
  options.method = "reverse";
  options.momentum_decay = eta;
  options.outer.rate = delta;
  const StormDoubleLoop loop(options);
  SampledRun run(loop);
  const Tensor start = run.state.inner.w;
  for (int iteration = 0; iteration < 4; ++iteration) {
    run.step();
    const auto& calls = run.calls();
    const double fall = 1 / std::sqrt(iteration + 1.0);
    struct Found {
      Tensor value, w;
    };
    const auto unrolled = [&](const Tensor& x, size_t evaluation) -> Found {
      const Batch &one = calls.inner_gradient.at(2 * evaluation),
                  &two = calls.inner_gradient.at(2 * evaluation + 1);
      const double rate = tau;
      const Dense first = run.at(start, x, one);
      const Tensor middle = start - rate * first.gradient;
      const Dense second = run.at(middle, x, two);
      const Tensor end = middle - rate * second.gradient;
      const Dense last = run.at(end, x, {}, calls.outer_gradient.at(evaluation));
      const Tensor carried = last.p - rate * second.hessian.mv(last.p);
      return {last.direct - rate * second.cross.mv(last.p) - rate * first.cross.mv(carried), end};
    };
    const size_t first = iteration == 0 ? 1 : 0;  // d_0 has a sample of its own
    const Tensor d = iteration == 0 ? unrolled(run.before.x, 0).value : run.before.memory.at("momentum");
    EXPECT_EQ(calls.inner_gradient.at(2 * first).seed, calls.inner_gradient.at(2 * first + 2).seed);
    EXPECT_EQ(calls.outer_gradient.at(first).seed, calls.outer_gradient.at(first + 1).seed);
    const Tensor x = run.before.x - delta * fall * d;
    const Found newer = unrolled(x, first), older = unrolled(run.before.x, first + 1);
    EXPECT_LT(relative_error(run.state.x, x), 1e-12) << iteration;
    EXPECT_LT(relative_error(run.state.inner.w, newer.w), 1e-12) << iteration;
    EXPECT_LT(
        relative_error(run.state.memory.at("momentum"), newer.value + (1 - eta * fall) * (d - older.value)),
        1e-11)
        << iteration;
  }
}

// The first momentum is a gradient at the first point: zero where f has no x in it, and then nothing moves x
// in the first step.
TEST(Fsla, the_first_momentum_belongs_to_the_first_point) {
  const Fsla fsla(small_fsla());
  Quadratic plain({.dimension = 3, .samples = 12, .seed = 11});
  Oracle oracle(plain);
  Streams streams(1, 12, 12);
  AlgorithmState state = fsla.init(oracle, vec({0.3, -0.2, 0.5}), vec({0.1, 0.7, -0.4}));
  EXPECT_EQ(length(state.v), 0);
  const IterationSummary first = fsla.step(oracle, state, streams);
  EXPECT_TRUE(state.x.equal(vec({0.3, -0.2, 0.5})));
  EXPECT_GT(length(first.direction), 0);  // or a tolerance on it would end the run
  fsla.step(oracle, state, streams);
  EXPECT_FALSE(state.x.equal(vec({0.3, -0.2, 0.5})));
}

// With eta = 1 throughout there is no momentum: the direction is the new gradient alone.
TEST(Fsla, samples_are_of_the_runs_sizes_and_momentum_ends_at_decay_one) {
  FslaOptions options = small_fsla();
  options.storm.momentum_decay = 1;
  options.storm.schedule.kind = ScheduleKind::constant;
  const Fsla fsla(options);
  SampledRun run(fsla);
  run.step();
  const IterationSummary summary = run.step();
  const auto& calls = run.calls();
  EXPECT_THAT(sizes(calls.hessian), ElementsAre(5));
  EXPECT_THAT(sizes(calls.cross), ElementsAre(5, 5));
  EXPECT_THAT(sizes(calls.inner_gradient), ElementsAre(5));
  EXPECT_THAT(sizes(calls.outer_gradient), ElementsAre(4, 4, 4));
  const Dense at = run.at(run.state.inner.w, run.state.x, calls.cross.at(0), calls.outer_gradient.at(1));
  EXPECT_LT(relative_error(summary.direction, at.direct - at.cross.mv(run.state.v)), 1e-12);
}

// Derivatives are taken at the x that the problem allows, not at the one the step proposes.
TEST(Fsla, moves_w_and_v_at_the_projected_x) {
  class Boxed : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    void project_outer_(Tensor& x) const override { x.clamp_(-0.1, 0.1); }
  };
  const Quadratic base({.dimension = 3, .samples = 12, .seed = 11});
  const DirectQuadratic direct(base);
  const Boxed boxed(direct);
  Oracle oracle(boxed);
  Streams streams(1, 12, 12);
  FslaOptions options = small_fsla();
  options.storm.outer.rate = 100;
  const Fsla fsla(options);
  AlgorithmState state = fsla.init(oracle, vec({0.1, 0.0, -0.1}), vec({0.1, 0.7, -0.4}));
  const Tensor w = state.inner.w;
  fsla.step(oracle, state, streams);
  EXPECT_TRUE((state.x.abs() == 0.1).all().item<bool>());
  EXPECT_LT(relative_error(state.inner.w, w - tau * dense_at(boxed, w, state.x).gradient), 1e-12);
}

TEST(Fsla, misuse_names_the_option_and_the_bound) {
  FslaOptions options = small_fsla();
  options.storm.momentum_decay = 1.5;
  EXPECT_THAT(message([&] { Fsla{options}; }),
              AllOf(HasSubstr("fsla: momentum_decay = 1.5"), HasSubstr("at most 1")));
  options = small_fsla();
  options.v_at = "between";
  EXPECT_THAT(message([&] { Fsla{options}; }),
              AllOf(HasSubstr("v_at = between"), HasSubstr("before or after")));
  SingleLoopOptions single = small_single("lu");
  EXPECT_THAT(message([&] { SingleLoop{single}; }),
              AllOf(HasSubstr("solver = lu"), HasSubstr("neumann or cg")));
}

}  // namespace
}  // namespace bilevel::test
