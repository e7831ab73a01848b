// `bilevel reproduce idarts:...` as a user runs it: what table 4 counts, and a search item at its shortest.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::map<std::string, json> rows_by(const json& table, const std::string& column) {
  std::map<std::string, json> rows;
  for (const json& row : table["rows"]) rows[row[column].get<std::string>()] = row;
  return rows;
}

TEST(ReproduceIdarts, Table4CountsWhatTheMethodsAreSaidToTake) {
  const Output output = run_program("reproduce idarts:table4 --json --threads 1");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const json result = output.json();
  auto rows = rows_by(result["tables"][0], "method");
  const auto products = [&](const std::string& method) {
    return std::pair<int, int>(rows.at(method)["hessian"], rows.at(method)["cross"]);
  };
  EXPECT_EQ(products("DARTS, one step"), std::pair(0, 1));
  EXPECT_EQ(products("T1-T2"), std::pair(0, 1));
  EXPECT_EQ(products("reverse, T = 4"), std::pair(3, 4));
  EXPECT_EQ(products("truncated, K = 2"), std::pair(1, 2));
  EXPECT_EQ(products("CG, S = 10"), std::pair(10, 1));
  EXPECT_EQ(products("iDARTS, K = 2"), std::pair(2, 1));
  // T states of w and no more.
  const double of_w = rows.at("DARTS, one step")["kept bytes"];
  EXPECT_EQ(rows.at("reverse, T = 4")["kept bytes"], 4 * of_w);
  EXPECT_EQ(rows.at("exact (CG to rounding)")["ended"], "converged");
  EXPECT_LT(rows.at("CG, S = 10")["distance"], rows.at("iDARTS, K = 2, rate 1/L")["distance"]);
  for (const json& claim : result["claims"]) EXPECT_TRUE(claim["holds"].get<bool>()) << claim.dump();
}

// A search of one epoch with one seed, whose cell is found in a table of this test: every cell of it has the
// accuracies of its row's number.
class ReproduceIdartsSearch : public ::testing::Test {
 protected:
  ReproduceIdartsSearch() {
    const char* operations[] = {"none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"};
    std::ofstream table(folder_ / "table.csv");
    table << "arch,cifar10_valid,cifar10_test,cifar100_valid,cifar100_test,imagenet16_valid,imagenet16_test,"
             "params_m,flops_m\n";
    for (int i = 0; i < 15625; ++i) {
      std::string op[6];
      for (int edge = 0, rest = i; edge < 6; ++edge, rest /= 5) op[edge] = operations[rest % 5];
      accuracies_["|" + op[0] + "~0|+|" + op[1] + "~0|" + op[2] + "~1|+|" + op[3] + "~0|" + op[4] + "~1|" +
                  op[5] + "~2|"] = i / 200.0;
    }
    for (const auto& [cell, accuracy] : accuracies_) {
      table << cell;
      for (int column = 0; column < 6; ++column) table << ',' << accuracy + column;
      table << ",0.1,10\n";
    }
  }
  TemporaryFolder folder_;
  std::map<std::string, double> accuracies_;
};

TEST_F(ReproduceIdartsSearch, Table1LooksUpWhatTheSearchesFound) {
  const Output output = run_program(
      "reproduce idarts:table1 --json --threads 1 --epochs 1 --seeds 0-0 --benchmark '" +
      folder_ / "table.csv" + "' --data-dir '" + folder_ / "" + "' --out '" + folder_ / "out" + "'");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const json result = output.json();
  std::map<std::string, std::string> ours;
  for (const json& row : result["tables"][0]["rows"]) {
    if (row["source"] == "ours") ours[row["method"]] = row["C100 test"];
  }
  ASSERT_EQ(result["runs"].size(), 4U);
  ASSERT_EQ(ours.size(), 4U);
  std::map<std::string, json> runs;
  for (const json& run : result["runs"]) {
    EXPECT_EQ(run.at("guard"), "none");  // the papers' algorithms
    runs[run["setting"].get<std::string>()] = run;
    const double accuracy = accuracies_.at(run["genotype"]);
    EXPECT_NEAR(run["reached"]["cifar10_valid"], accuracy, 1e-9);
    EXPECT_NEAR(std::stod(ours.at(run["setting"])), accuracy + 3, 0.005 + 1e-9);
  }
  // Eight steps of alpha: T = 4 weight steps and K = 2 Hessian products each, on differences for the cross
  // product.
  EXPECT_EQ(runs.at("iDARTS")["counts"]["hessian"], 16);
  EXPECT_EQ(runs.at("DARTS")["counts"]["hessian"], 0);
  EXPECT_EQ(runs.at("GDAS")["counts"]["hessian"], 0);
  EXPECT_EQ(runs.at("RandomNAS")["counts"]["outer_gradient"], 0);
  const bool better =
      runs.at("iDARTS")["reached"]["cifar10_test"] > runs.at("DARTS")["reached"]["cifar10_test"];
  EXPECT_EQ(result["claims"][0]["holds"], better);
  EXPECT_THAT(result["notes"].dump(), HasSubstr("too few to say anything about the paper's numbers"));
  const std::string csv = read_text(folder_ / "out/idarts-table1.csv");
  EXPECT_THAT(csv, AllOf(HasSubstr("setting,method,T,K,"), HasSubstr("iDARTS,idarts,4,2,0.01,0.0003,0,1,")));
  // Six accuracies for one epoch of each of the three searches that move alpha.
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 3 * 6);
}

TEST(ReproduceIdarts, RefusesOptionsThatAnItemDoesNotTake) {
  const Output toy = run_program("reproduce krmd:toy --epochs 3");
  EXPECT_EQ(toy.exit_code, 2);
  EXPECT_THAT(toy.err, HasSubstr("has no effect with krmd:toy; only idarts:table1"));
  const Output few = run_program("reproduce idarts:table1 --epochs -1");
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.err, HasSubstr("--epochs -1: must be at least 0"));
  // Searches or the number of one seed?
  const Output two = run_program("reproduce idarts:table1 --seeds 2");
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_THAT(two.err, HasSubstr("--seeds 2: write 2-2 for seed number 2, or 0-1 for 2 seeds"));
}

}  // namespace
}  // namespace bilevel::test
