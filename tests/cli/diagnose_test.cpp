// `bilevel diagnose` and `--method auto` as a user runs them.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bilevel/run/shell_word.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

json read_json(const std::string& path) { return json::parse(read_text(path)); }

// As if it had been stopped after its last step.
void call_interrupted(const std::string& folder) {
  json facts = read_json(folder + "/run.json");
  facts["status"] = "interrupted";
  std::ofstream(folder + "/run.json") << facts;
}

// The choice is made once: it is in config.json, and so in the summary of what went on.
TEST(AutoMethod, AResumedRunDoesNotDiagnoseAgain) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  for (const std::string command :
       {"solve --problem ridge --iterations 3", "solve --problem mlp --iterations 3"}) {
    std::filesystem::remove_all(run);
    const json first = run_json(command + " --method auto --out '" + run + "'");
    call_interrupted(run);
    const Output second = run_program("solve --json --resume '" + run + "'");
    ASSERT_EQ(second.exit_code, 0) << second.err;
    EXPECT_THAT(second.err, Not(HasSubstr("auto:")));
    EXPECT_THAT(second.err, Not(HasSubstr("diagnose")));
    EXPECT_EQ(second.json().at("auto"), first.at("auto"));
    EXPECT_EQ(second.json().at("method"), first.at("method"));
  }
  // Another run takes the options as if they had been typed, without the reason.
  const json other = run_json("solve --config '" + run + "/config.json' --iterations 1");
  EXPECT_FALSE(other.contains("auto"));
}

// A run's own point: after some steps the inner problem is nearer to solved than at the start.
TEST(Diagnose, AtARunsCheckpoint) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  run_json("solve --problem ridge --seed 3 --iterations 30 --out '" + run + "'");
  const json start = run_json("diagnose --problem ridge --seed 3");
  const json there = run_json("diagnose --at '" + run + "'");
  EXPECT_EQ(there.at("problem"), "ridge");
  EXPECT_LT(there.at("start").at("gradient_norm").get<double>(),
            0.1 * start.at("start").at("gradient_norm").get<double>());
  EXPECT_TRUE(there.at("recommendation").at("reaches"));
  EXPECT_EQ(there.at("commands").size(), 1U);
  EXPECT_THAT(there.at("commands")[0].get<std::string>(), HasSubstr("solve --problem ridge --seed 3"));
  EXPECT_THAT(run_program("diagnose --at '" + (folder / "none") + "'").err, HasSubstr("none"));
}

// Two classes on a line, every seventh label wrong.
std::string line_of_examples(int examples) {
  std::string text;
  for (int i = 0; i < examples; ++i) {
    const int label = i % 2;
    const double place = (label == 0 ? -1 : 1) + 0.1 * (i % 9) - 0.4;
    text += std::to_string(place) + "," + std::to_string(0.3 * place + 0.05 * (i % 5)) + "," +
            std::to_string(i % 7 == 3 ? 1 - label : label) + "\n";
  }
  return text;
}

// Of commands that make their problem from files, in a folder whose name a shell must be told about.
TEST(Diagnose, AtARunOfCleanOrTune) {
  const TemporaryFolder folder;
  std::ofstream(folder / "train.csv") << line_of_examples(60);
  std::ofstream(folder / "valid.csv") << line_of_examples(30);
  const std::string files = " --train '" + folder / "train.csv" + "' --valid '" + folder / "valid.csv" + "'";
  for (const std::string owner : {"clean", "tune"}) {
    const std::string run = folder / ("that's " + owner);
    run_json(owner + files + " --dtype double --iterations 5 --seed 4 --out " + shell_word(run));
    const json there = run_json("diagnose --at " + shell_word(run));
    EXPECT_EQ(there.at("outer_size"), owner == "clean" ? 60 : 2);
    EXPECT_TRUE(there.at("recommendation").at("reaches")) << there.at("recommendation").at("sentence");
    ASSERT_EQ(there.at("commands").size(), 1U);
    const std::string again = there.at("commands")[0];
    EXPECT_EQ(again.rfind("bilevel " + owner + " --config ", 0), 0U) << again;
    const json second = run_json(again.substr(8) + " --iterations 2");
    EXPECT_TRUE(second.contains("folder")) << again;
    const Output page = run_program("report " + shell_word(run));
    EXPECT_EQ(page.exit_code, 0) << page.err;
    EXPECT_THAT(read_text(run + "/report.html"), HasSubstr("--config &#39;"));
    EXPECT_THAT(run_program("diagnose --problem ridge --at " + shell_word(run)).err,
                HasSubstr("--problem with --at"));
  }
}

TEST(AutoMethod, AnUnsafeRateIsRefused) {
  const Output refused = run_program("solve --problem ridge --method auto --inner-rate 100");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("rate of 100"), HasSubstr("largest safe one")));
  const json report = run_json("diagnose --problem ridge --inner-rate 100");
  EXPECT_TRUE(report.at("inner").at("unsafe_rate"));
  EXPECT_TRUE(report.at("commands").empty());
}

// The first df/dw of `quadratic` lies along one eigenvector; what is chosen must do for others, too.
TEST(AutoMethod, TheChoiceHoldsWhereTheRunEnds) {
  const json summary = run_json("solve --problem quadratic --method auto --iterations 300");
  EXPECT_LE(summary.at("auto").at("error_at_end").get<double>(), 0.01);
  EXPECT_FALSE(summary.contains("warnings"));
}

// x adds curvature here, eight times that of the data.
TEST(AutoMethod, RatesStaySafeWhereXLeadsAndAGrownErrorIsSaid) {
  const Output output = run_program("solve --problem task-interaction --method auto --iterations 150 --json");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const json summary = output.json();
  EXPECT_EQ(summary.at("iterations"), 150);
  EXPECT_GT(summary.at("auto").at("error_at_end").get<double>(), 0.01);
  EXPECT_THAT(output.err, HasSubstr("warning: --method auto"));
  EXPECT_THAT(summary.at("warnings")[0].get<std::string>(), HasSubstr("where the run ended"));
}

TEST(AutoMethod, NegativeCurvatureNamesTheWaysOut) {
  const Output failed = run_program("solve --problem mlp --iterations 3");
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_THAT(failed.err, AllOf(HasSubstr("--damping"), HasSubstr("--curvature gauss-newton"),
                                HasSubstr("--method truncated"), HasSubstr("--method auto"),
                                HasSubstr("--on-failure damp")));
  const json chosen = run_json("solve --problem mlp --method auto --iterations 3");
  EXPECT_EQ(chosen.at("iterations"), 3);
  EXPECT_EQ(chosen.at("auto").at("curvature"), "gauss-newton");
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
