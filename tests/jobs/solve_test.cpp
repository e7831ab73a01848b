// The job `solve` as a C++ program calls it: in memory, in a folder, stopped and gone on with.
#include "bilevel/jobs/solve.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "bilevel/data/npy.h"
#include "bilevel/fields/option_text.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

SolveJobOptions ridge() {
  SolveJobOptions options;
  options.problem.problem = "ridge";
  options.algorithm.solve.iterations = 12;
  options.compute.threads = 1;
  return options;
}

TEST(SolveJob, RoundingOfAGpuIsRefusedWhereThereIsNone) {
  SolveJobOptions options;
  options.problem.problem = "ridge";
  options.given.set(options.compute.tf32, false);
  RunContext context;
  EXPECT_THAT(
      [&] { run_solve(options, context); },
      ::testing::ThrowsMessage<OptionError>(
          "tf32 = false has no effect with device = cpu; only device = cuda in float uses it. Leave it out"));
}

TEST(SolveJob, InMemoryGivesWhatTheLibraryGives) {
  RunContext context;
  const SolveJobResult result = run_solve(ridge(), context);
  EXPECT_EQ(result.end.status, RunStatus::finished);
  EXPECT_EQ(result.folder, "");
  EXPECT_EQ(result.summary.state.iteration, 12);

  const NamedProblem problem = make_problem("ridge");
  SolveOptions plain;
  plain.iterations = 12;
  plain.records = 20;
  plain.settings = result.settings;
  const SolveSummary direct = solve(*problem.problem, *make_algorithm("aid-cg", result.settings), plain);
  EXPECT_TRUE(at::equal(direct.state.x, result.summary.state.x));
}

TEST(SolveJob, AProblemOfOnesOwnPassesInPlaceOfAName) {
  RunContext by_name, by_door;
  const SolveJobResult expected = run_solve(ridge(), by_name);
  SolveJobOptions options = ridge();
  options.problem.problem.clear();
  options.problem.own = [] {
    NamedProblem own = make_problem("ridge");
    own.name = "mine";
    return own;
  };
  const SolveJobResult result = run_solve(options, by_door);
  EXPECT_EQ(result.problem, "mine");
  EXPECT_TRUE(at::equal(result.summary.state.x, expected.summary.state.x));

  options.given.set(options.compute.dtype, "float");
  try {
    (void)run_solve(options, by_door);
    FAIL() << "its types are its own";
  } catch (const OptionError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("a user-defined problem does not take dtype"));
  }
}

TEST(SolveJob, InterruptedAndResumedItHasTheSameBits) {
  const TemporaryFolder folder;
  RunContext whole;
  const SolveJobResult expected = run_solve(ridge(), whole);

  const std::string place = folder / "run";
  int64_t asked = 0;
  {
    RunContext stopped({.keep = true, .out = place}, {.interrupted = [&] { return ++asked == 5; }});
    const SolveJobResult half = run_solve(ridge(), stopped);
    EXPECT_EQ(half.end.status, RunStatus::interrupted);
    EXPECT_EQ(half.summary.state.iteration, 5);
  }
  EXPECT_EQ(read_run(place).status, RunStatus::interrupted);
  RunContext resumed({.keep = true, .resume = place}, {});
  const SolveJobResult rest = run_solve(ridge(), resumed);
  EXPECT_EQ(rest.end.status, RunStatus::finished);
  EXPECT_TRUE(at::equal(rest.summary.state.x, expected.summary.state.x));
  EXPECT_TRUE(at::equal(read_npy(place + "/x.npy"), expected.summary.state.x));
}

TEST(SolveJob, OptionsThatWouldBeIgnoredAreRefusedByTheirFields) {
  SolveJobOptions options = ridge();
  options.given.set(options.problem.supernet.space, "darts");
  RunContext context;
  try {
    run_solve(options, context);
    FAIL() << "taken";
  } catch (const OptionError& error) {
    EXPECT_STREQ(error.what(), "problem ridge does not take space: only supernet does");
    EXPECT_EQ(flag_text(error.marked()), "problem ridge does not take --space: only supernet does");
  }
}

}  // namespace
}  // namespace bilevel::test
