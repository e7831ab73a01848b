// Failures and error bounds as the program shows them.
#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// In a run folder that goes away with the test.
Output run_solve(const std::string& arguments) {
  const TemporaryFolder folder;
  return run_program("solve " + arguments + " --out " + (folder / "run"));
}

TEST(Failure, ARateOfAHundredStopsAtOnceAndNamesTheLargestSafeOne) {
  const auto begin = std::chrono::steady_clock::now();
  const Output output = run_solve("--problem quadratic --inner-rate 100");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 20);
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err,
              AllOf(HasSubstr("inner rate 100 is above 2/L = 7.4"), HasSubstr("take --inner-rate 3.7e-05")));
  EXPECT_THAT(output.out, AllOf(HasSubstr("failure in iteration 1"), HasSubstr("repair: none")));
}

TEST(Failure, BacktrackingIsRecordedAndGetsThere) {
  const std::string run =
      "--problem quadratic --inner-rate 100 --on-failure backtrack --iterations 40 --json";
  const json report = run_solve(run).json();
  EXPECT_EQ(report.at("stopped"), "iterations");
  const json& failure = report.at("failures").at(0);
  EXPECT_EQ(failure.at("iteration"), 1);
  EXPECT_THAT(failure.at("repair").get<std::string>(), HasSubstr("inner rate 100 to 3.7"));
  EXPECT_THAT(failure.at("cause").get<std::string>(), HasSubstr("2/L"));
  const json healthy = run_solve("--problem quadratic --iterations 40 --json").json();
  EXPECT_FALSE(healthy.contains("failures"));
  EXPECT_NEAR(report.at("outer_loss").get<double>(), healthy.at("outer_loss").get<double>(),
              1e-3 * healthy.at("outer_loss").get<double>());
  EXPECT_EQ(run_solve("--problem quadratic --on-failure pray").exit_code, 2);
}

TEST(Failure, LinearSolvesThatDivergeEndTheRunAndAreShown) {
  const std::string run = "--problem ridge --algorithm idarts --linear-rate 1.5 ";
  const Output text = run_solve(run);
  EXPECT_EQ(text.exit_code, 3);
  EXPECT_THAT(text.err, AllOf(HasSubstr("20 of 20 linear solves failed"),
                              HasSubstr("The rate 1.5 of the linear"), HasSubstr("take --linear-rate")));
  EXPECT_THAT(text.out, HasSubstr("linear solves: 20 diverged"));
  const Output output = run_solve(run + "--json");
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_EQ(output.json().at("linear_solves"), (json{{"diverged", 20}}));
  EXPECT_EQ(output.json().at("stopped"), "failed");
  const Output repaired = run_solve(run + "--on-failure backtrack --iterations 60 --json");
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_EQ(repaired.json().at("linear_solves").at("diverged"), 20);
  EXPECT_THAT(run_solve("--problem ridge --iterations 5").out, HasSubstr("linear solves: 5 "));
}

TEST(Failure, LearnEndsWhereMostLinearSolvesMeetNegativeCurvature) {
  const TemporaryFolder folder;
  const std::string run =
      "learn --data blobs --learner imaml --curvature hessian --proximal 0.001 --queries 5 --filters 16 "
      "--valid-tasks 5 --test-tasks 5 --iterations 60 --out ";
  const Output output = run_program(run + (folder / "run"));
  EXPECT_EQ(output.exit_code, 3) << output.out;
  EXPECT_THAT(output.err, AllOf(HasSubstr("linear solves failed"), HasSubstr("negative_curvature"),
                                HasSubstr("take --curvature gauss-newton")));
  EXPECT_THAT(output.out, HasSubstr("linear solves: "));
  EXPECT_FALSE(std::filesystem::exists(folder / "run/model"));
}

TEST(ErrorBound, SolveShowsItOnceItIsAskedFor) {
  const std::string run = "--problem ridge --iterations 6 --records 3 ";
  const json report = run_solve(run + "--error-bound --json").json();
  for (const json& record : report.at("history")) {
    if (record.at("iteration") == 0) continue;
    EXPECT_GT(record.at("error_bound").get<double>(), 0);
    EXPECT_EQ(record.at("error_bound_kind"), "rigorous");
  }
  EXPECT_FALSE(run_solve(run + "--json").json().at("history").back().contains("error_bound"));
  EXPECT_THAT(run_solve(run + "--error-bound").out, AllOf(HasSubstr("error <="), HasSubstr("rigorous")));
}

TEST(ErrorBound, CheckShowsItBesideTheErrors) {
  const json report = run_program("check --problem ridge --inner-steps 60 --json").json();
  for (const json& row : report.at("methods")) {
    EXPECT_EQ(row.at("error_bound_kind"), "rigorous") << row;
    EXPECT_GE(row.at("error_bound").get<double>(), row.at("error_implicit").get<double>()) << row;
  }
  const json mlp = run_program("check --problem mlp --methods cg --json").json();
  EXPECT_TRUE(mlp.at("methods").at(0).at("error_bound").is_null());
  EXPECT_EQ(mlp.at("methods").at(0).at("error_bound_kind"), "none");
  EXPECT_THAT(run_program("check --problem ridge --methods cg").out, HasSubstr("bound"));
}

}  // namespace
}  // namespace bilevel::test
