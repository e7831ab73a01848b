// DARTS, truncated with one kept step and iDARTS with T = 1, K = 0 from one saved state of a search on the
// same batches: the first two are the same, the third takes its cross product after the step instead of
// before it. iDARTS calls all three the same.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "bilevel/algorithms/darts.h"
#include "bilevel/algorithms/double_loop.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/run/state_checkpoint.h"
#include "tests/cli/program.h"
#include "tests/nas/small_supernet.h"

namespace bilevel::nas {
namespace {

using test::length;
using test::relative_error;

struct Inner {
  std::string optimizer;
  double clip_norm;
  bool clips;  // the gradient at the saved state is longer than that
};

class ThreeHypergradients : public ::testing::TestWithParam<Inner> {
 protected:
  static constexpr double rate = 0.025, momentum = 0.9;

  ThreeHypergradients()
      : supernet(synthetic_supernet(small_supernet())), problem(supernet, 5e-4), oracle(problem) {
    inner.optimizer = GetParam().optimizer;
    inner.rate = rate;
    inner.momentum = momentum;
    inner.clip_norm = GetParam().clip_norm;
    inner.steps = 1;
    // Some steps of a search, so that w, alpha and the momenta are somewhere; then through a file.
    const Darts darts({.inner = inner, .outer = outer});
    Streams streams = fresh_streams();
    AlgorithmState searched = darts.init(oracle, problem.initial_outer(1), problem.initial_inner(1));
    for (int k = 0; k < 5; ++k) darts.step(oracle, searched, streams);
    Checkpoint file;
    put_state(file, searched);
    put_streams(file, streams);
    save_checkpoint(folder / "search.state", file);
    saved = load_checkpoint(folder / "search.state");

    state = take_state(saved);
    Streams here = saved_streams();
    training = here.inner("steps");
    validation = here.outer("loss");
    InnerLoop run;
    run.options = inner;
    run.keep = {0};
    run.batches = [this](int64_t) { return training; };
    step = continue_inner(oracle, state.x, state.inner, run);
    const OuterGradients after = oracle.outer_gradients(step.final.w, state.x, validation);
    p = after.w;
    direct = after.x;
  }

  Streams fresh_streams() const {
    return {7, problem.inner_samples(), problem.outer_samples(), {.inner_batch = 6, .outer_batch = 6}};
  }
  Streams saved_streams() const {
    Streams streams = fresh_streams();
    take_streams(saved, streams);
    return streams;
  }
  // What a rule moves alpha along, from the saved state.
  Tensor direction(const Algorithm& rule) {
    AlgorithmState from = take_state(saved);
    Streams streams = saved_streams();
    return rule.step(oracle, from, streams).direction;
  }
  Tensor darts() { return direction(Darts({.inner = inner, .outer = outer})); }
  Tensor idarts(double linear_rate) {
    HypergradientRequest request{.x = state.x, .inner = step};
    request.outer = validation;
    request.cross = training;
    EstimatorSettings settings;
    settings.terms = 0;
    settings.linear_rate = linear_rate;
    return make_estimator("neumann", settings)->estimate(oracle, request).value;
  }
  Tensor cross(const Tensor& w, const Tensor& v) { return oracle.linearize(w, state.x, training)->cross(v); }

  SupernetProblem supernet;
  WithWeightDecay problem;
  Oracle oracle;
  InnerOptions inner;
  OuterOptions outer{.optimizer = "adam", .rate = 3e-4};
  test::TemporaryFolder folder;
  Checkpoint saved;
  AlgorithmState state;
  Batch training, validation;
  Trajectory step;
  Tensor p, direct;  // df/dw and df/dx after the step
};

TEST_P(ThreeHypergradients, DartsIsTruncatedWithOneKeptStep) {
  EstimatorSettings settings;
  settings.truncate = 1;
  const DoubleLoop truncated({.name = "truncated", .inner = inner, .outer = outer},
                             make_estimator("truncated", settings));
  const Tensor of_darts = darts();
  EXPECT_LT(relative_error(of_darts, direction(truncated)), 1e-14);
  EXPECT_LT(relative_error(of_darts, test::graph_hypergradient(problem, state.x, step, 0, false, validation)),
            1e-11);
  EXPECT_GT(relative_error(of_darts, direct), 1e-4);  // there is something to compare
}

TEST_P(ThreeHypergradients, IdartsDiffersByWhereTheCrossProductIsTaken) {
  const Tensor w = state.inner.w, stepped = step.final.w;
  ASSERT_GT(length(w - stepped), 0);
  const Tensor gradient = oracle.inner_gradient(w, state.x, training);
  ASSERT_EQ(length(gradient) > GetParam().clip_norm && GetParam().clip_norm > 0, GetParam().clips);

  // The derivative of the step in its gradient: -scale, after the Jacobian of the clipping (core/clipped.h).
  const double scale = GetParam().optimizer == "nesterov" ? (1 + momentum) * rate : rate;
  Tensor seen = p;
  if (GetParam().clips) {
    const double norm = length(gradient), s = GetParam().clip_norm / (norm + 1e-6);
    const Tensor u = gradient / norm;
    seen = s * (p - s / GetParam().clip_norm * norm * u.dot(p) * u);
  }
  EXPECT_LT(relative_error(darts(), direct - scale * cross(w, seen)), 1e-13);
  EXPECT_LT(relative_error(idarts(scale), direct - scale * cross(stepped, p)), 1e-13);
  EXPECT_LT(relative_error(idarts(0), direct - rate * cross(stepped, p)), 1e-13);  // the inner rate
  if (GetParam().clips) return;
  const Tensor moved = scale * (cross(w, p) - cross(stepped, p));
  EXPECT_LT(relative_error(idarts(scale) - darts(), moved), 1e-10);
  EXPECT_GT(length(moved), 1e-3 * length(darts() - direct));  // the step moves w, and C with it
}

INSTANTIATE_TEST_SUITE_P(Steps, ThreeHypergradients,
                         ::testing::Values(Inner{"gd", 0, false}, Inner{"nesterov", 0, false},
                                           Inner{"nesterov", 50, false}, Inner{"nesterov", 0.1, true},
                                           Inner{"gd", 0.1, true}),
                         [](const auto& tested) {
                           return tested.param.optimizer + "_" + std::to_string(tested.index);
                         });

// Where the step no longer moves w, all three agree.
TEST(ThreeHypergradientsAtRest, AreOne) {
  const SupernetProblem problem = synthetic_supernet(small_supernet());
  Oracle oracle(problem);
  const Tensor x = problem.initial_outer(1), w = problem.initial_inner(1);
  InnerOptions inner{.optimizer = "gd", .steps = 1, .rate = 1e-9};
  const Trajectory step = test::run_all_kept(oracle, x, w, inner);
  EstimatorSettings settings;
  settings.terms = 0;
  settings.truncate = 1;
  const Hypergradient darts = test::estimate_along("one-step", settings, oracle, x, step);
  const Hypergradient truncated = test::estimate_along("truncated", settings, oracle, x, step);
  const Hypergradient idarts = test::estimate_along("neumann", settings, oracle, x, step);
  const double through_w = length(darts.value - darts.direct);
  ASSERT_GT(through_w, 0);
  EXPECT_LT(length(darts.value - truncated.value), 1e-14 * length(darts.value));
  EXPECT_LT(length(darts.value - idarts.value), 1e-5 * through_w);
}

}  // namespace
}  // namespace bilevel::nas
