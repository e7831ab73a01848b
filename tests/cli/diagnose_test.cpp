// `bilevel diagnose` and `--method auto` as a user runs them.

#include <gmock/gmock.h>

#include <string>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json run_json(const std::string& arguments) {
  const Output output = run_program(arguments + " --json");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  return output.json();
}

// The lines are printed to be typed: each runs, and check's table has the promised error.
TEST(Diagnose, ItsCommandsCanBeTyped) {
  for (const std::string problem :
       {"ridge", "hyper-cleaning --seed 2 --regularization 0.02", "mlp", "learned-rate"}) {
    const json report = run_json("diagnose --problem " + problem + " --accuracy 0.01");
    const json& chosen = report.at("recommendation");
    EXPECT_TRUE(chosen.at("reaches")) << problem;
    const auto commands = report.at("commands").get<std::vector<std::string>>();
    ASSERT_EQ(commands.size(), 2U);
    ASSERT_EQ(commands[0].rfind("bilevel check --problem " + problem.substr(0, 5), 0), 0U) << commands[0];
    const json check = run_json(commands[0].substr(8));
    ASSERT_EQ(check.at("methods").size(), 1U);
    const json& row = check.at("methods")[0];
    EXPECT_EQ(row.at("name"), chosen.at("method"));
    const bool implicit = row.at("name") == "cg" || row.at("name") == "neumann";
    const double error = row.at(implicit ? "error_implicit" : "error_unrolled");
    EXPECT_LT(error, 0.01) << problem;
    EXPECT_NEAR(error, chosen.at("error").get<double>(), 1e-4) << problem;
    const json solved = run_json(commands[1].substr(8) + " --iterations 3");
    EXPECT_EQ(solved.at("iterations"), 3) << problem;
  }
}

TEST(Diagnose, TextAndJsonAgree) {
  const Output text = run_program("diagnose --problem quadratic");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  const json report = run_json("diagnose --problem quadratic");
  EXPECT_EQ(report.at("methods").size(), 15U);
  EXPECT_EQ(report.at("reference"), "solution");
  for (const char* word : {"largest safe rate", "needs K", "bilevel check --problem quadratic --methods",
                           "bilevel solve --problem quadratic --algorithm double-loop"}) {
    EXPECT_THAT(text.out, HasSubstr(word));
  }
  EXPECT_THAT(text.out, HasSubstr(report.at("recommendation").at("sentence").get<std::string>()));
}

TEST(Diagnose, WhatCannotBe) {
  EXPECT_THAT(run_program("diagnose --problem ridge --accuracy 2").err, HasSubstr("--accuracy 2"));
  EXPECT_THAT(run_program("diagnose --problem ridge --data mnist").err,
              HasSubstr("only hyper-cleaning does"));
  EXPECT_THAT(run_program("diagnose --problem hyper-cleaning --corruption 0.1").err,
              HasSubstr("--corruption needs --data"));
  EXPECT_EQ(run_program("diagnose").exit_code, 2);
}

TEST(AutoMethod, SolveTakesTheRecommendation) {
  const json advice = run_json("diagnose --problem ridge --accuracy 0.001").at("recommendation");
  const Output output =
      run_program("solve --problem ridge --method auto --accuracy 0.001 --iterations 5 --json");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr(advice.at("sentence").get<std::string>()));
  const json summary = output.json();
  EXPECT_EQ(summary.at("algorithm"), "double-loop");
  EXPECT_EQ(summary.at("method"), advice.at("method"));
  EXPECT_EQ(summary.at("auto").at("K"), advice.at("K"));
  EXPECT_EQ(summary.at("counts").at("inner_gradient"), 5 * advice.at("inner_steps").get<int64_t>());
}

// What the user gave stays.
TEST(AutoMethod, KeepsWhatWasGiven) {
  const json summary = run_json(
      "solve --problem ridge --method auto --inner-steps 30 --inner-optimizer gd --inner-rate 0.2 "
      "--iterations 2");
  EXPECT_EQ(summary.at("auto").at("inner_steps"), 30);
  EXPECT_EQ(summary.at("auto").at("inner_optimizer"), "gd");
  EXPECT_DOUBLE_EQ(summary.at("inner_rate"), 0.2);
  EXPECT_EQ(summary.at("counts").at("inner_gradient"), 60);
}

TEST(AutoMethod, RefusesWhatItWouldOverride) {
  EXPECT_THAT(run_program("solve --problem ridge --method auto --algorithm soba").err,
              AllOf(HasSubstr("--algorithm soba"), HasSubstr("leave --algorithm out")));
  EXPECT_THAT(run_program("solve --problem ridge --method auto --terms 3").err,
              HasSubstr("--terms with --method auto"));
}

}  // namespace
}  // namespace bilevel::test
