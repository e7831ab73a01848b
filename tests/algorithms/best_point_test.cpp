// The best point of a run: its w must have been made at its x, for every rule that moves them in its own
// order.
#include "bilevel/algorithms/best_point.h"

#include <gmock/gmock.h>

#include "tests/algorithms/known_optima.h"

namespace bilevel::test {
namespace {

struct Followed {
  BestPoint best;
  SolveSummary summary;
  Tensor w_before() const { return summary.records.at(summary.records.size() - 2).w; }
};

// Every record counts as better than the one before: the best point is the last one.
Followed follow_run(const Known& known, const std::string& name, const AlgorithmSettings& settings,
                    int64_t iterations, int64_t records) {
  Followed found;
  SolveHooks hooks = follow(found.best, {});
  hooks.record = [&found](const SolveRecord& record, const AlgorithmState& state) {
    SolveRecord better = record;
    better.outer_loss = -static_cast<double>(record.iteration);
    return found.best.take(better, state);
  };
  const SolveOptions options{.iterations = iterations, .records = records, .keep_points = true};
  found.summary = solve(*known.problem, *make_algorithm(name, settings), options, hooks, known.x, known.w);
  EXPECT_EQ(found.summary.reason, StopReason::iterations) << name << ": " << found.summary.message;
  EXPECT_EQ(found.best.iteration, iterations) << name;
  return found;
}

// One step of w along grad_w g, at the x that is reported with it.
TEST(BestPoint, HasTheXOfASingleLoopsW) {
  const Known known = known_quadratic();
  for (const char* name :
       {"fsla", "single-loop-neumann", "single-loop-cg", "darts", "soba", "ma-soba", "aid-cg", "stocbio"}) {
    AlgorithmSettings settings = settings_for(known);
    settings.inner.steps = 1;
    const Followed found = follow_run(known, name, settings, 6, 6);
    const Tensor gradient = known.problem->inner_gradient(found.w_before(), found.best.x, {});
    const Tensor step = found.w_before() - found.best.w;
    EXPECT_GT(length(step), 0) << name;
    // Along the gradient: the rate may fall.
    EXPECT_LT(length(step - step.dot(gradient) / gradient.dot(gradient) * gradient), 1e-10 * length(step))
        << name;
  }
}

TEST(BestPoint, HasTheXOfADoubleLoopsW) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.steps = 4;
  for (const char* name : {"storm-double-loop", "krmd"}) {
    const Followed found = follow_run(known, name, settings, 6, 6);
    Tensor w = known.w;
    for (int t = 0; t < 4; ++t) {
      w = w - settings.inner.rate * known.problem->inner_gradient(w, found.best.x, {});
    }
    EXPECT_LT(relative_error(found.best.w, w), 1e-12) << name;
  }
}

// From the solution on, STABLE's w is that of the next x on a quadratic.
TEST(BestPoint, HasTheXOfStablesW) {
  Known known = known_quadratic();
  known.w = known.solution(known.x);
  AlgorithmSettings settings = settings_for(known);
  settings.outer.optimizer = "sgd";
  const Followed found = follow_run(known, "stable", settings, 6, 6);
  EXPECT_LT(relative_error(found.best.w, known.solution(found.best.x)), 1e-10);
}

// HOAG's first step is far too long and is taken back: only the record after that is seen.
TEST(BestPoint, HasTheXOfHoagsWAfterAStepWasTakenBack) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.outer.optimizer = "sgd";
  settings.outer.rate = 20 * known.outer_rate;
  settings.tolerance.first = 1e-9;
  const Followed found = follow_run(known, "hoag", settings, 2, 1);
  ASSERT_EQ(found.summary.state.numbers.at("rejections"), 1);
  EXPECT_LT(length(known.problem->inner_gradient(found.best.w, found.best.x, {})), 1e-8);
}

}  // namespace
}  // namespace bilevel::test
