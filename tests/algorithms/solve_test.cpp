// The loop and its streams: budgets, records, reasons for stopping, and batches that are what they say.
#include "bilevel/algorithms/solve.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "tests/algorithms/known_optima.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Streams, batches_are_subsets_of_the_asked_size_and_streams_are_independent) {
  Streams streams(1, 10, 7, {.inner_batch = 4, .outer_batch = 3});
  std::set<int64_t> seen;
  for (int k = 0; k < 40; ++k) {
    const Tensor index = streams.inner("a").index;
    ASSERT_EQ(index.numel(), 4);
    for (int64_t i = 0; i < 4; ++i) seen.insert(index[i].item<int64_t>());
    EXPECT_TRUE((index.slice(0, 1) > index.slice(0, 0, 3)).all().item<bool>());
  }
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(streams.outer("a").index.numel(), 3);
  EXPECT_EQ(streams.inner("a", 9).index.numel(), 9);
  EXPECT_TRUE(streams.inner("a", 10).is_full());
  EXPECT_TRUE(streams.outer("a", 100).is_full());
  EXPECT_NE(streams.inner("b").seed, streams.inner("c").seed);
  EXPECT_NE(streams.random("a").next(), streams.random("a").next());
}

TEST(Streams, a_subset_is_uniform) {
  Random random(3);
  std::vector<int> hits(5, 0);
  constexpr int draws = 20000;
  for (int k = 0; k < draws; ++k) {
    const Tensor subset = random_subset(random, 5, 2);
    for (int64_t i = 0; i < 2; ++i) ++hits[static_cast<size_t>(subset[i].item<int64_t>())];
  }
  // 2/5 each, standard deviation sqrt(0.24 draws) = 69
  for (const int hit : hits) EXPECT_NEAR(hit, draws * 0.4, 5 * 69);
}

TEST(Streams, positions_replay) {
  Streams one(9, 50, 50, {.inner_batch = 5, .outer_batch = 5});
  for (int k = 0; k < 7; ++k) one.inner("x");
  Streams two(9, 50, 50, {.inner_batch = 5, .outer_batch = 5});
  two.seek(one.positions());
  EXPECT_TRUE(one.inner("x").index.equal(two.inner("x").index));
  EXPECT_THAT(message([&] { two.seek({{"inner/x", -1}}); }), AllOf(HasSubstr("inner/x"), HasSubstr("-1")));
  EXPECT_THAT(message([] { Streams(0, 5, 5, {.inner_batch = -2}); }), HasSubstr("-2"));
}

TEST(Solve, records_begin_and_end_the_run_and_cost_nothing) {
  const Known known = known_quadratic();
  const auto algorithm = make_algorithm("aid-cg", settings_for(known));
  const SolveSummary summary = solve_from(known, *algorithm, {.iterations = 20, .records = 4});
  ASSERT_EQ(summary.records.size(), 5U);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(summary.records[i].iteration, static_cast<int64_t>(5 * i));
  EXPECT_EQ(summary.reason, StopReason::iterations);
  EXPECT_EQ(summary.counts.inner_gradient, 20 * 20);
  EXPECT_EQ(summary.counts.outer_gradient, 20);
  EXPECT_EQ(summary.records.back().counts.hessian, summary.counts.hessian);
  EXPECT_LT(summary.records.back().outer_loss, summary.records[1].outer_loss);  // w starts unsolved
  const SolveSummary dense = solve_from(known, *algorithm, {.iterations = 20, .records = 20});
  EXPECT_TRUE(dense.state.x.equal(summary.state.x));
}

// A process that waits uses no processor.
TEST(Solve, processor_time_leaves_out_waiting) {
  class Waits : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& b) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return base_.inner_gradient(w, x, b);
    }
  };
  const Known known = known_quadratic();
  const Waits problem(*known.problem);
  const auto algorithm = make_algorithm("fsla", settings_for(known));
  SolveOptions options{.iterations = 3};
  const double by_clock = solve(problem, *algorithm, options, {}, known.x, known.w).seconds;
  options.processor_time = true;
  const double by_processor = solve(problem, *algorithm, options, {}, known.x, known.w).seconds;
  EXPECT_GE(by_clock, 0.3);
  EXPECT_LT(by_processor, 0.3);
}

TEST(Solve, as_many_records_as_iterations_are_one_of_each) {
  const Known known = known_quadratic();
  const auto algorithm = make_algorithm("soba", settings_for(known));
  for (const int64_t iterations : {1, 7, 49, 150, 1000}) {
    const SolveSummary summary =
        solve_from(known, *algorithm, {.iterations = iterations, .records = iterations});
    ASSERT_EQ(summary.records.size(), static_cast<size_t>(iterations) + 1);
    for (int64_t i = 0; i <= iterations; ++i) {
      EXPECT_EQ(summary.records[static_cast<size_t>(i)].iteration, i);
    }
  }
}

TEST(Solve, budgets_stop_it) {
  const Known known = known_quadratic();
  const auto algorithm = make_algorithm("soba", settings_for(known));
  SolveOptions options{.iterations = 1000000, .oracle_calls = 41};
  SolveSummary summary = solve_from(known, *algorithm, options);
  EXPECT_EQ(summary.reason, StopReason::oracle_calls);
  EXPECT_EQ(summary.state.iteration, 11);  // four calls each: 40 is below 41
  options.oracle_calls = 0;
  options.seconds = 0.05;
  summary = solve_from(known, *make_algorithm("aid-cg", settings_for(known)), options);
  EXPECT_EQ(summary.reason, StopReason::seconds);
  EXPECT_GE(summary.seconds, 0.05);
  options = {.iterations = 100000, .direction_tolerance = 1e-6};
  summary = solve_from(known, *make_algorithm("aid-cg", settings_for(known)), options);
  EXPECT_EQ(summary.reason, StopReason::converged);
  EXPECT_LT(known.gradient_norm(summary.state.x), 1e-5);
}

TEST(Solve, a_hook_stops_it) {
  const Known known = known_quadratic();
  const auto algorithm = make_algorithm("aid-cg", settings_for(known));
  int64_t last = -1;
  const SolveSummary summary = solve(*known.problem, *algorithm, {.iterations = 100, .records = 10},
                                     {.record =
                                          [&](const SolveRecord& record, const AlgorithmState& state) {
                                            EXPECT_EQ(record.iteration, state.iteration);
                                            last = record.iteration;
                                            return record.iteration < 30;
                                          }},
                                     known.x, known.w);
  EXPECT_EQ(summary.reason, StopReason::stopped);
  EXPECT_EQ(last, 30);
}

TEST(Solve, what_a_hook_stopped_stays_stopped) {
  const Known known = known_quadratic();
  const auto algorithm = make_algorithm("aid-cg", settings_for(known));
  const SolveOptions options{.iterations = 100, .records = 10};
  SolveState saved;
  const SolveSummary first =
      solve(*known.problem, *algorithm, options,
            {.record = [](const SolveRecord& record, const AlgorithmState&) { return record.iteration < 30; },
             .save = [&](const SolveState& state) { saved = state; }},
            known.x, known.w);
  const SolveSummary again = continue_solve(*known.problem, *algorithm, options, saved);
  EXPECT_EQ(again.reason, StopReason::stopped);
  EXPECT_EQ(again.state.iteration, 30);
  EXPECT_TRUE(again.state.x.equal(first.state.x));
  EXPECT_EQ(again.records.size(), first.records.size());
}

TEST(Solve, a_rate_that_is_too_large_ends_with_the_last_good_state_and_its_cause) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate = 100;
  const SolveSummary summary =
      solve_from(known, *make_algorithm("soba", settings), {.iterations = 1000, .records = 1});
  EXPECT_EQ(summary.reason, StopReason::not_finite);
  EXPECT_THAT(summary.message, AllOf(HasSubstr("soba"), HasSubstr("rate")));
  EXPECT_TRUE(std::isfinite(length(summary.state.x)));
  EXPECT_TRUE(std::isfinite(length(summary.state.inner.w)));
}

TEST(Solve, misuse_names_the_option) {
  const Known known = known_quadratic();
  const auto algorithm = make_algorithm("soba", settings_for(known));
  EXPECT_THAT(message([&] { solve_from(known, *algorithm, {.iterations = -1}); }),
              AllOf(HasSubstr("iterations"), HasSubstr("-1")));
  EXPECT_THAT(message([&] { solve_from(known, *algorithm, {.seconds = NAN}); }), HasSubstr("seconds"));
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate = -1;
  EXPECT_THAT(message([&] { make_algorithm("soba", settings); }),
              AllOf(HasSubstr("inner_rate"), HasSubstr("-1")));
}

}  // namespace
}  // namespace bilevel::test
