// A run that failed and was repaired, saved to a file in the middle and read back: the same bits as if it had
// never stopped, with its failures, its bounds and its lowered rates.
#include "bilevel/run/solve_checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "bilevel/problems/quadratic.h"
#include "bilevel/run/checkpoint.h"

namespace bilevel::test {
namespace {

TEST(SolveCheckpoint, a_repaired_run_with_bounds_goes_on_from_a_file) {
  const Quadratic problem({.dimension = 3, .samples = 12, .seed = 11});
  AlgorithmSettings settings;
  settings.inner = {.steps = 200, .rate = 100};
  settings.outer.rate = 0.01;
  settings.with_bound = true;
  const auto algorithm = make_algorithm("aid-cg", settings);
  SolveOptions options{.iterations = 12, .records = 4};
  options.settings = settings;
  options.on_failure = OnFailure::backtrack;
  const SolveSummary whole = solve(problem, *algorithm, options);
  ASSERT_EQ(whole.reason, StopReason::iterations) << whole.message;
  ASSERT_EQ(whole.failures.size(), 1U);
  ASSERT_EQ(whole.records.back().bound.kind, BoundKind::rigorous);

  const std::string path = std::filesystem::temp_directory_path() / "bilevel-solve-checkpoint-test";
  int iterations = 0;
  const SolveHooks hooks{.save =
                             [&](const SolveState& state) {
                               Checkpoint checkpoint;
                               put_solve(checkpoint, state);
                               save_checkpoint(path, checkpoint);
                             },
                         .interrupted = [&] { return ++iterations == 5; }};
  EXPECT_EQ(solve(problem, *algorithm, options, hooks).reason, StopReason::interrupted);
  SolveState read = take_solve(read_checkpoint(path));
  std::filesystem::remove(path);
  EXPECT_LT(read.adjustment.inner_rate, 1);
  EXPECT_GT(read.watch.largest_w, 0);
  EXPECT_EQ(read.good.iteration, read.so_far.state.iteration - 1);
  const SolveSummary resumed = continue_solve(problem, *algorithm, options, std::move(read));
  EXPECT_TRUE(resumed.state.x.equal(whole.state.x));
  EXPECT_TRUE(resumed.state.inner.w.equal(whole.state.inner.w));
  ASSERT_EQ(resumed.failures.size(), 1U);
  EXPECT_EQ(resumed.failures[0].cause, whole.failures[0].cause);
  EXPECT_EQ(resumed.failures[0].repair, whole.failures[0].repair);
  EXPECT_EQ(resumed.records.back().bound.value, whole.records.back().bound.value);
  ASSERT_EQ(resumed.records.size(), whole.records.size());
  for (size_t i = 0; i < whole.records.size(); ++i) {
    EXPECT_EQ(resumed.records[i].bound.kind, whole.records[i].bound.kind) << i;
  }
}

TEST(SolveCheckpoint, what_was_done_about_a_failure_is_read_from_the_words_of_earlier_versions) {
  SolveState state;
  state.so_far.algorithm = "soba";
  state.so_far.state.x = state.so_far.state.inner.w = at::ones({1}, at::kDouble);
  state.so_far.failures = {{3, "what", "cause", "none: it went on", FailureAnswer::went_on},
                           {5, "what", "cause", "inner rate 100 to 0.5", FailureAnswer::repaired},
                           {7, "what", "cause", "none", FailureAnswer::ended}};
  Checkpoint now;
  put_solve(now, state);
  Checkpoint earlier = now, damaged = now;
  for (auto& failure : earlier.metadata["solve"]["failures"]) failure.erase("answer");
  for (const Checkpoint& stored : {now, earlier}) {
    const SolveState read = take_solve(stored);
    ASSERT_EQ(read.so_far.failures.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(read.so_far.failures[i].answer, state.so_far.failures[i].answer) << i;
    }
  }
  damaged.metadata["solve"]["failures"][0]["answer"] = 3;
  EXPECT_THROW(take_solve(damaged), std::runtime_error);
}

// A record for every step of a long run: as text they would not fit a header.
TEST(SolveCheckpoint, a_hundred_thousand_records_come_back) {
  SolveState state;
  state.so_far.algorithm = "soba";
  state.so_far.state.x = state.so_far.state.inner.w = at::ones({1}, at::kDouble);
  for (int64_t i = 0; i < 100'000; ++i) {
    SolveRecord r;
    r.iteration = i;
    r.seconds = 0.25;
    r.counts.samples = int64_t{1} << 52;
    r.outer_loss = 1 / static_cast<double>(i + 1);
    r.bound = {BoundKind::rigorous, 0.5};
    r.metrics["accuracy"] = std::numeric_limits<double>::quiet_NaN();
    if (i % 2 == 0) r.metrics["regret"] = 3;
    state.so_far.records.push_back(r);
  }
  Checkpoint checkpoint;
  put_solve(checkpoint, state);
  const std::string path = std::filesystem::temp_directory_path() / "bilevel-solve-records-test";
  save_checkpoint(path, checkpoint);
  const std::vector<SolveRecord> back = take_solve(read_checkpoint(path)).so_far.records;
  std::filesystem::remove(path);
  ASSERT_EQ(back.size(), 100'000U);
  EXPECT_EQ(back[7].iteration, 7);
  EXPECT_EQ(back[7].seconds, 0.25);
  EXPECT_EQ(back[7].counts.samples, int64_t{1} << 52);
  EXPECT_EQ(back[7].outer_loss, 0.125);
  EXPECT_EQ(back[7].bound.kind, BoundKind::rigorous);
  EXPECT_EQ(back[7].bound.value, 0.5);
  EXPECT_TRUE(std::isnan(back[7].metrics.at("accuracy")));
  EXPECT_FALSE(back[7].metrics.contains("regret"));
  EXPECT_EQ(back[8].metrics.at("regret"), 3);

  checkpoint.tensors["solve/records"].data_ptr<double>()[2] = 1e300;
  EXPECT_THROW(take_solve(checkpoint), std::runtime_error);
}

}  // namespace
}  // namespace bilevel::test
