// `bilevel solve`, `compare` and `reproduce` as a user runs them.

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <set>
#include <string>

#include "bilevel/algorithms/registry.h"
#include "bilevel/data/npy.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Solve, GivesTheHistoryAndSavesWhatItFound) {
  const TemporaryFolder folder;
  const json report = run_json("solve --problem ridge --algorithm aid-cg --iterations 40 --records 4 --out " +
                               (folder / "run"));
  EXPECT_EQ(report.at("problem"), "ridge");
  EXPECT_EQ(report.at("algorithm"), "aid-cg");
  EXPECT_EQ(report.at("stopped"), "iterations");
  EXPECT_EQ(report.at("iterations"), 40);
  EXPECT_EQ(report.at("history").size(), 5U);
  EXPECT_EQ(report.at("counts").at("inner_gradient"), 400);
  EXPECT_LT(report.at("outer_loss"), report.at("history")[1].at("outer_loss"));
  EXPECT_EQ(read_npy(folder / "run/x.npy").numel(), 20);
  EXPECT_EQ(read_npy(folder / "run/w.npy").numel(), 20);
  EXPECT_EQ(json::parse(read_text(folder / "run/summary.json")).at("iterations"), 40);
}

TEST(Solve, OneSeedRepeatsItsBitsAndTwoDiffer) {
  const std::string command =
      "solve --problem hyper-cleaning --algorithm soba --inner-batch 8 --outer-batch 8 --iterations 30 "
      "--out ";
  const TemporaryFolder folder;
  run_json(command + (folder / "a") + " --seed 3");
  run_json(command + (folder / "b") + " --seed 3");
  run_json(command + (folder / "c") + " --seed 4");
  const Tensor first = read_npy(folder / "a/x.npy");
  EXPECT_TRUE(first.equal(read_npy(folder / "b/x.npy")));
  EXPECT_FALSE(first.equal(read_npy(folder / "c/x.npy")));
}

// Every setting of a single algorithm is reachable: another value, another x.
TEST(Solve, SettingsOfSingleAlgorithmsReachThem) {
  const TemporaryFolder folder;
  int runs = 0;
  const auto x_of = [&](const std::string& arguments) {
    const std::string out = folder / ("run" + std::to_string(runs++));
    run_json(
        "solve --problem hyper-cleaning --inner-batch 8 --outer-batch 8 --iterations 12 --inner-rate 0.5 "
        "--out " +
        out + " --algorithm " + arguments);
    return read_npy(out + "/x.npy");
  };
  for (const auto& [algorithm, setting] : std::vector<std::pair<std::string, std::string>>{
           {"stocbio", "--strong-convexity 0.3 --hessian-batch 4"},
           {"fsla", "--momentum-decay 0.2"},
           {"ma-soba", "--averaging 0.7"},
           {"vrbo", "--period 3 --large-batch 20"},
           {"f2sa", "--penalty 3 --penalty-growth 0.5"},
           {"bome", "--joint-rate 0.02 --barrier 0.1"}}) {
    EXPECT_FALSE(x_of(algorithm).equal(x_of(algorithm + " " + setting))) << algorithm;
  }
}

// FSLA's proof needs its rates in fixed ratios, which Adam's own scale would undo.
TEST(Solve, FslaTakesPlainStepsUnlessAdamIsAskedFor) {
  const TemporaryFolder folder;
  int runs = 0;
  const auto heading_of = [&](const std::string& algorithm) {
    const std::string out = folder / ("run" + std::to_string(runs++));
    const std::string text =
        run_program("solve --problem ridge --iterations 3 --out " + out + " --algorithm " + algorithm).out;
    return text.substr(0, text.find('\n'));
  };
  EXPECT_THAT(heading_of("fsla"), HasSubstr("outer sgd"));
  EXPECT_THAT(heading_of("single-loop-cg"), HasSubstr("outer sgd"));
  EXPECT_THAT(heading_of("fsla --outer-optimizer adam"), HasSubstr("outer adam"));
  EXPECT_THAT(heading_of("aid-cg"), HasSubstr("outer adam"));
}

TEST(Solve, ADivergingRunSaysWhyAndKeepsTheLastGoodState) {
  const TemporaryFolder folder;
  const Output output = run_program(
      "solve --problem quadratic --algorithm soba --inner-rate 1 --json --out " + (folder / "run"));
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err,
              AllOf(HasSubstr("it diverges in iteration 1"), HasSubstr("take --inner-rate 3.7e-05")));
  EXPECT_EQ(output.json().at("stopped"), "failed");
  EXPECT_TRUE(at::isfinite(read_npy(folder / "run/x.npy")).all().item<bool>());
}

TEST(Solve, RefusalsNameTheOption) {
  const auto error = [](const std::string& arguments) {
    const Output output = run_program("solve " + arguments);
    EXPECT_EQ(output.exit_code, 2) << arguments;
    EXPECT_EQ(output.out, "") << arguments;
    return output.err;
  };
  EXPECT_THAT(error("--problem ridge --algorithm adam"), AllOf(HasSubstr("'adam'"), HasSubstr("aid-cg")));
  EXPECT_THAT(error("--problem ridge --iterations -1"), HasSubstr("iterations"));
  EXPECT_THAT(error("--problem ridge --outer-optimizer lion"), AllOf(HasSubstr("'lion'"), HasSubstr("adam")));
  EXPECT_THAT(error("--problem learned-rate --algorithm soba"), HasSubstr("double loop"));
  EXPECT_THAT(error("--problem learned-rate --algorithm reverse --inner-rate 1"), HasSubstr("--inner-rate"));
}

TEST(Solve, AMethodThatWouldBeIgnoredIsRefused) {
  for (const char* arguments :
       {"solve --problem ridge --algorithm krmd --method cg", "solve --problem ridge --method cg",
        "interact --method cg", "compare --problem ridge --algorithms aid-cg,krmd --method cg"}) {
    const Output output = run_program(arguments);
    EXPECT_EQ(output.exit_code, 2) << arguments << output.err;
    EXPECT_EQ(output.out, "") << arguments;
    EXPECT_THAT(output.err,
                AllOf(HasSubstr("--method cg has no effect with "),
                      HasSubstr("; only double-loop and storm-double-loop use it. Leave it out")));
  }
  EXPECT_THAT(run_program("interact --method auto").err, HasSubstr("--method auto"));
  const Output unknown = run_program("interact --algorithm double-loop --method auto");
  EXPECT_EQ(unknown.exit_code, 2) << unknown.err;
  EXPECT_THAT(unknown.err, HasSubstr("auto"));
}

TEST(Compare, EveryAlgorithmLowersTheLossAndNoTwoAreTheSame) {
  const TemporaryFolder folder;
  const json report = run_json(
      "compare --problem hyper-cleaning --algorithms stocbio,aid-cg,itd,fsla,soba,saba,f2sa,hoag,bsa,ttsa "
      "--seeds 0-1 "
      "--budget-calls 20000 --records 4 --out " +
      (folder / "cmp"));
  std::set<double> ends;
  ASSERT_EQ(report.at("algorithms").size(), 10U);
  for (const json& row : report.at("algorithms")) {
    ASSERT_EQ(row.at("runs").size(), 2U);
    for (const json& run : row.at("runs")) {
      EXPECT_TRUE(run.at("decreased").get<bool>()) << row.at("name") << run;
      EXPECT_GT(run.at("gradient_norm_last").get<double>(), 0) << row.at("name");
      ends.insert(run.at("x_norm").get<double>());
    }
    EXPECT_EQ(row.at("by_calls").size(), 21U);
    EXPECT_EQ(row.at("candidates"), 18);
  }
  // Deterministic rules give both seeds the same x (hyper-cleaning starts at zero): aid-cg, itd and hoag.
  EXPECT_EQ(ends.size(), 17U);
  EXPECT_THAT(read_text(folder / "cmp/runs.csv"), HasSubstr("algorithm,seed,iteration,seconds,oracle_calls"));
  EXPECT_THAT(read_text(folder / "cmp/by_oracle_calls.csv"), HasSubstr("\nsaba,"));
  EXPECT_THAT(read_text(folder / "cmp/by_seconds.csv"), HasSubstr("loss_mean,loss_spread"));
}

TEST(Compare, OnlyAlgorithmsWithAnInnerLoopHaveAnInnerLength) {
  const std::string command =
      "compare --problem ridge --algorithms aid-cg,soba --seeds 0-0 --outer-rate 0.01 --budget-calls 200";
  const json rows = run_json(command).at("algorithms");
  EXPECT_EQ(rows.at(0).at("inner_steps"), 10);
  EXPECT_TRUE(rows.at(1).at("inner_steps").is_null());
  EXPECT_THAT(run_program(command).out, ContainsRegex("soba +- "));
}

TEST(Compare, GivenRatesAreUsedAndNotSearched) {
  const json report = run_json(
      "compare --problem ridge --algorithms aid-cg,idarts --seeds 5-5 --outer-rate 0.5 --inner-rate 0.2 "
      "--budget-calls 500 --outer-optimizer sgd");
  for (const json& row : report.at("algorithms")) {
    EXPECT_EQ(row.at("candidates"), 0);
    EXPECT_EQ(row.at("outer_rate"), 0.5);
    EXPECT_EQ(row.at("inner_rate"), 0.2);
  }
}

TEST(Compare, TheYardstickIsNamedInTheTextTheJsonAndTheFiles) {
  const std::string arguments = " --seeds 0 --budget-calls 400 --records 2 --outer-rate 0.1";
  const TemporaryFolder folder;
  const Output solved = run_program("compare --problem ridge --algorithms aid-cg,soba" + arguments +
                                    " --out " + (folder / "solved"));
  EXPECT_EQ(solved.exit_code, 0) << solved.err;
  EXPECT_THAT(solved.out,
              AllOf(HasSubstr("every row is measured by f(x, w*(x)), with the inner problem solved to 1e-08"),
                    HasSubstr("           f(x, w*(x))        |its gradient|\n")));
  EXPECT_THAT(read_text(folder / "solved/runs.csv"), HasSubstr(",\"f(x, w*(x))\","));
  const Output own = run_program("compare --problem mlp --algorithms itd,f2sa" + arguments);
  EXPECT_EQ(own.exit_code, 0) << own.err;
  EXPECT_THAT(own.out, AllOf(HasSubstr("every row is measured by f(x, w) at the algorithm's own w"),
                             HasSubstr("           own f(x, w)"), Not(HasSubstr("gradient|"))));
  const json report = run_json("compare --problem mlp --algorithms itd,f2sa" + arguments);
  EXPECT_EQ(report.at("yardstick"), "own f(x, w)");
  for (const json& row : report.at("algorithms")) {
    EXPECT_EQ(row.at("yardstick"), "own f(x, w)");
    EXPECT_FALSE(row.contains("gradient_norm"));
  }
}

// The default iterations are raised where there is a budget, and a schedule with an end must not stay at what
// they were.
TEST(Compare, AScheduleEndsWithTheBudget) {
  const json report = run_json(
      "compare --problem quadratic --algorithms soba --seeds 0 --outer-rate 1e-6 --outer-optimizer sgd "
      "--outer-schedule cosine --budget-calls 20000");
  const json& row = report.at("algorithms")[0];
  EXPECT_EQ(row.at("runs")[0].at("iterations"), 5000);
  EXPECT_EQ(row.at("schedule_iterations"), 5000);
}

TEST(Compare, RefusalsNameTheOption) {
  const auto error = [](const std::string& arguments) {
    const Output output = run_program("compare --problem ridge " + arguments);
    EXPECT_EQ(output.exit_code, 2) << arguments;
    return output.err;
  };
  EXPECT_THAT(error("--algorithms aid-cg,aid-cg"), HasSubstr("algorithm aid-cg is listed twice"));
  EXPECT_THAT(error("--algorithms aid-cg,nobody"), HasSubstr("'nobody'"));
  EXPECT_THAT(error("--algorithms aid-cg --seeds 3-1"), HasSubstr("--seeds 3-1"));
  EXPECT_THAT(error("--algorithms aid-cg --seeds 1,x"), HasSubstr("--seeds 1,x"));
  EXPECT_THAT(error("--algorithms aid-cg --outer-rates 1,-1"), HasSubstr("-1"));
}

TEST(Reproduce, ListsItsItemsAndRunsOne) {
  const json list = run_json("reproduce");
  std::set<std::string> names;
  for (const json& item : list.at("items")) names.insert(item.at("name"));
  EXPECT_EQ(names, (std::set<std::string>{
                       "krmd:toy",        "krmd:table1",     "krmd:table2",      "krmd:table3",
                       "krmd:table4",     "krmd:figure5",    "krmd:figure6",     "krmd:figure7",
                       "stocbio:figure1", "stocbio:figure5", "stocbio:figure6",  "fsla:figure1",
                       "fsla:cleaning",   "fsla:ablation",   "stocbio:cleaning", "stocbio:newsgroups",
                       "stocbio:theory",  "idarts:table1",   "idarts:table2",    "idarts:table3",
                       "idarts:table4",   "idarts:figure1",  "idarts:figure2",   "idarts:figure3",
                       "idarts:figure4",  "idarts:theorem2"}));
  const json table = run_json("reproduce krmd:table1");
  for (const json& claim : table.at("claims")) EXPECT_TRUE(claim.at("holds").get<bool>()) << claim;
  EXPECT_EQ(table.at("tables")[0].at("rows").size(), 4U);
  const Output unknown = run_program("reproduce krmd:table9");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("'krmd:table9'"), HasSubstr("krmd:table2")));
  const Output no_data = run_program("reproduce krmd:table2 --data-dir /nowhere");
  EXPECT_NE(no_data.exit_code, 0);
  EXPECT_THAT(no_data.err, AllOf(HasSubstr("/nowhere"), HasSubstr("bilevel data get")));
}

TEST(List, NamesEveryAlgorithm) {
  const json list = run_json("list");
  std::set<std::string> names;
  for (const json& row : list.at("algorithms")) names.insert(row.at("name"));
  for (const AlgorithmRow& row : algorithm_rows()) EXPECT_TRUE(names.contains(row.name)) << row.name;
}

}  // namespace
}  // namespace bilevel::test
