// DARTS: one iteration by hand, its direction against the estimators, first order, and df/dx as it is passed
// on by rules with an estimator.
#include "bilevel/algorithms/darts.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/algorithms/sampled.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

DartsOptions small_darts(const std::string& optimizer = "heavy-ball") {
  DartsOptions options;
  options.inner.optimizer = optimizer;
  options.inner.rate = sampled_rate;
  options.inner.steps = 50;  // not read
  options.outer.rate = 0.01;
  return options;
}

TEST(Darts, an_iteration_is_the_rule_by_hand) {
  const Darts darts(small_darts());
  SampledRun run(darts);
  for (int k = 0; k < 3; ++k) {
    const IterationSummary summary = run.step();
    const auto& calls = run.calls();
    ASSERT_EQ(sizes(calls.inner_gradient), (std::vector<int64_t>{5, 5}));
    ASSERT_EQ(sizes(calls.cross), (std::vector<int64_t>{5}));
    ASSERT_EQ(sizes(calls.outer_gradient), (std::vector<int64_t>{4}));
    EXPECT_TRUE(calls.hessian.empty());
    // One training batch for the virtual step, its derivative and the real step.
    EXPECT_EQ(different({calls.inner_gradient, calls.cross}), 1U);
    const Batch training = calls.cross[0], validation = calls.outer_gradient[0];

    const Tensor w = run.before.inner.w, x = run.before.x, m = run.before.inner.buffers[0];
    EXPECT_EQ(length(m) > 0, k > 0);
    const Dense here = run.at(w, x, training);
    const Tensor virtual_w = w - sampled_rate * (here.gradient + 0.9 * m);
    const Dense there = run.at(virtual_w, x, training, validation);
    const Tensor direction = there.direct - sampled_rate * here.cross.mv(there.p);
    EXPECT_LT(relative_error(summary.direction, direction), 1e-13);
    EXPECT_LT(relative_error(summary.direct, there.direct), 1e-13);
    EXPECT_EQ(summary.status, Status::ok);

    const Tensor next_x = x - 0.01 * direction;
    EXPECT_LT(relative_error(run.state.x, next_x), 1e-14);
    const Tensor next_m = run.at(w, next_x, training).gradient + 0.9 * m;
    EXPECT_LT(relative_error(run.state.inner.buffers[0], next_m), 1e-13);
    EXPECT_LT(relative_error(run.state.inner.w, w - sampled_rate * next_m), 1e-14);
    EXPECT_EQ(run.state.inner.step, k + 1);
  }
}

TEST(Darts, the_direction_is_truncated_with_one_kept_step_over_the_same_batch) {
  for (const std::string& optimizer : inner_optimizer_names()) {
    for (const double clip : {0.0, 0.5}) {
      DartsOptions options = small_darts(optimizer);
      options.inner.clip_norm = clip;
      const Darts darts(options);
      SampledRun run(darts);
      for (int k = 0; k < 2; ++k) {
        const IterationSummary summary = run.step();
        InnerLoop one;
        one.options = options.inner;
        one.options.steps = 1;
        one.keep = {0};
        const Batch training = run.calls().cross[0], validation = run.calls().outer_gradient[0];
        one.batches = [&](int64_t) { return training; };
        const Trajectory inner = continue_inner(run.oracle, run.before.x, run.before.inner, one);
        EstimatorSettings settings;
        settings.truncate = 1;
        const Hypergradient truncated =
            estimate_along("truncated", settings, run.oracle, run.before.x, inner, validation);
        EXPECT_TRUE(at::equal(summary.direction, truncated.value)) << optimizer;
        EXPECT_LT(relative_error(summary.direction,
                                 graph_hypergradient(run.problem, run.before.x, inner, 0, false, validation)),
                  1e-12)
            << optimizer;
      }
    }
  }
}

// The quadratic's gradients are linear in w, so that a difference has no error but rounding.
TEST(Darts, the_cross_product_may_be_a_central_difference) {
  DartsOptions options = small_darts();
  const Darts exact(options);
  options.curvature.difference_cross = true;
  const Darts differences(options);
  SampledRun one(exact), other(differences);
  for (int k = 0; k < 3; ++k) {
    const Tensor direction = one.step().direction;
    EXPECT_LT(relative_error(other.step().direction, direction), 1e-10);
    EXPECT_EQ(other.calls().cross.size(), 0U);
    EXPECT_EQ(other.calls().inner_gradient.size(), 4U);
    EXPECT_EQ(different({other.calls().inner_gradient}), 1U);
  }
}

TEST(Darts, first_order_takes_df_dx_where_w_is) {
  DartsOptions options = small_darts();
  options.first_order = true;
  const Darts darts(options);
  SampledRun run(darts);
  for (int k = 0; k < 3; ++k) {
    const IterationSummary summary = run.step();
    ASSERT_EQ(run.calls().inner_gradient.size(), 1U);
    EXPECT_TRUE(run.calls().cross.empty() && run.calls().hessian.empty());
    const Batch training = run.calls().inner_gradient[0], validation = run.calls().outer_gradient[0];
    const Dense here = run.at(run.before.inner.w, run.before.x, training, validation);
    EXPECT_LT(relative_error(summary.direction, here.direct), 1e-14);
    EXPECT_TRUE(at::equal(summary.direct, summary.direction));
    EXPECT_LT(relative_error(run.state.x, run.before.x - 0.01 * here.direct), 1e-14);
    const Tensor m =
        run.at(run.before.inner.w, run.state.x, training).gradient + 0.9 * run.before.inner.buffers[0];
    EXPECT_LT(relative_error(run.state.inner.w, run.before.inner.w - sampled_rate * m), 1e-14);
  }
}

// w's real step is taken at an x that the problem allows.
TEST(Darts, the_real_step_is_at_the_projected_x) {
  class Boxed : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    void project_outer_(Tensor& x) const override { x.clamp_(-0.1, 0.1); }
  };
  const Quadratic quadratic({.dimension = 3, .samples = 12, .seed = 11});
  const Boxed boxed(quadratic);
  const Darts darts(small_darts("gd"));
  Oracle oracle(boxed);
  Streams streams(1, 12, 12);
  AlgorithmState state = darts.init(oracle, vec({0.3, -0.2, 0.5}), vec({0.1, 0.7, -0.4}));
  const Tensor w = state.inner.w;
  darts.step(oracle, state, streams);
  EXPECT_LE(number(state.x.abs().max()), 0.1);
  EXPECT_LT(relative_error(state.inner.w, w - sampled_rate * dense_at(boxed, w, state.x).gradient), 1e-14);
}

TEST(Darts, misuse_names_the_option_and_the_bound) {
  DartsOptions options = small_darts();
  options.curvature.difference_step = 0;
  EXPECT_THAT(message([&] { Darts{options}; }), ::testing::HasSubstr("difference_step = 0"));
  options = small_darts();
  options.inner.rate = -1;
  EXPECT_THAT(message([&] { Darts{options}; }), ::testing::HasSubstr("inner_rate = -1"));
}

// |direction - direct| / |direct| is what a user asks of a search: how much comes through w.
TEST(DirectTerm, double_loops_pass_df_dx_on) {
  for (const char* name : {"idarts", "itd", "aid-cg", "krmd", "double-loop"}) {
    AlgorithmSettings settings;
    settings.inner.rate = sampled_rate;
    settings.inner.steps = 3;
    settings.outer.rate = 0.01;
    const auto algorithm = make_algorithm(name, settings);
    SampledRun run(*algorithm);
    for (int k = 0; k < 2; ++k) {
      const IterationSummary summary = run.step();
      const Dense there = run.at(run.state.inner.w, run.before.x, {}, run.calls().outer_gradient[0]);
      EXPECT_LT(relative_error(summary.direct, there.direct), 1e-14) << name;
      EXPECT_GT(relative_error(summary.direction, summary.direct), 1e-3) << name;
    }
  }
}

}  // namespace
}  // namespace bilevel::test
