// The job `diagnose` as a C++ program calls it: on a problem, and where a run
// stands.
#include "bilevel/jobs/diagnose.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/check.h"
#include "bilevel/jobs/solve.h"
#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

DiagnoseJobOptions diagnose_on(const std::string& problem) {
  DiagnoseJobOptions options;
  options.given.set(options.problem.problem, problem);
  options.given.set(options.compute.threads, 1);
  return options;
}

// The advice is options of other jobs: check, given just these, measures the
// error that was promised.
TEST(DiagnoseJob, ItsAdviceCanBeFollowedWithoutACommandLine) {
  DiagnoseJobOptions options = diagnose_on("hyper-cleaning");
  options.given.set(options.problem.data.seed, uint64_t{2});
  options.given.set(options.problem.data.regularization, 0.02);
  RunContext context;
  const DiagnoseJobResult result = run_diagnose(options, context);
  EXPECT_FALSE(result.search);
  ASSERT_EQ(result.suggested.size(), 2U);
  EXPECT_EQ(result.suggested[0].job, "check");
  EXPECT_EQ(result.suggested[1].job, "solve");
  CheckJobOptions check;
  give_rest(OptionsView(check), result.suggested[0].options);
  EXPECT_EQ(check.problem.data.seed, 2U);
  EXPECT_EQ(check.problem.data.regularization, 0.02);
  EXPECT_THAT(check.check.methods, ElementsAre(result.diagnosis.recommendation.method));
  const CheckResult checked = run_check(check, context).check;
  EXPECT_NEAR(checked.methods.at(0).error_implicit, result.diagnosis.recommendation.error, 1e-4);
  EXPECT_LT(checked.methods.at(0).error_implicit, 0.01);
  SolveJobOptions solve;
  give_rest(OptionsView(solve), result.suggested[1].options);
  EXPECT_EQ(solve.algorithm.algorithm, "double-loop");
  EXPECT_EQ(solve.algorithm.settings.inner.steps, result.diagnosis.recommendation.inner.steps);
  EXPECT_EQ(solve.algorithm.settings.inner.rate, result.diagnosis.recommendation.inner.rate);
  EXPECT_EQ(result.json.at("commands")[0], command_line(result.suggested[0]));
}

TEST(DiagnoseJob, ACommandLineNamesFlagsAndQuotesWords) {
  EXPECT_EQ(command_line({.job = "solve",
                          .options = {{"train_features", {"my x.npy"}},
                                      {"bias", {}},
                                      {"operations", {"none", "skip"}},
                                      {"inner_rate", {"0.5"}}}}),
            "bilevel solve --train-features 'my x.npy' --bias --operations "
            "none,skip --inner-rate 0.5");
}

// Where a run of solve stands: its problem from its stored options, its point
// from its checkpoint.
TEST(DiagnoseJob, TakesAStoredRunsProblemAndPoint) {
  const TemporaryFolder folder;
  SolveJobOptions solve;
  solve.given.set(solve.problem.problem, std::string("ridge"));
  solve.given.set(solve.problem.data.seed, uint64_t{3});
  solve.given.set(solve.compute.threads, 1);
  solve.given.set(solve.algorithm.solve.iterations, int64_t{30});
  RunContext kept({.keep = true, .out = folder / "run"}, {});
  run_solve(solve, kept);

  DiagnoseJobOptions start = diagnose_on("ridge");
  start.given.set(start.problem.data.seed, uint64_t{3});
  DiagnoseJobOptions there;
  there.given.set(there.at, folder / "run");
  RunContext context;
  const DiagnoseJobResult before = run_diagnose(start, context), after = run_diagnose(there, context);
  EXPECT_EQ(after.diagnosis.problem, "ridge");
  EXPECT_LT(after.diagnosis.start.gradient_norm, 0.1 * before.diagnosis.start.gradient_norm);
  ASSERT_EQ(after.suggested.size(), 1U);
  EXPECT_THAT(command_line(after.suggested[0]), StartsWith("bilevel solve --problem ridge --seed 3 --dtype "
                                                           "double --algorithm double-loop"));

  // Of another size than the checkpoint's: what the run was made of is not
  // there any more.
  there.given.set(there.problem.problem, std::string("quadratic"));
  try {
    run_diagnose(there, context);
    FAIL() << "another problem's checkpoint was taken";
  } catch (const RunError& error) {
    EXPECT_THAT(flag_text(error.marked()),
                AllOf(StartsWith("--at " + folder / "run" + ": its checkpoint has"),
                      HasSubstr("the data have changed since")));
  }
}

TEST(DiagnoseJob, AnUnsafeRateIsAnsweredWithoutACommand) {
  DiagnoseJobOptions options = diagnose_on("ridge");
  options.given.set(options.diagnose.inner.rate, 100.0);
  RunContext context;
  const DiagnoseJobResult result = run_diagnose(options, context);
  EXPECT_TRUE(result.diagnosis.unsafe_rate);
  EXPECT_TRUE(result.suggested.empty());
  EXPECT_TRUE(result.json.at("commands").empty());
}

}  // namespace
}  // namespace bilevel::test
