// `bilevel reproduce`'s items on tasks as a user runs them who has none of the data.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

json reproduce(const std::string& item) {
  const TemporaryFolder folder;
  const Output output = run_program("reproduce " + item + " --json --threads 1 --data-dir '" + folder / "" +
                                    "' --out '" + folder / "out" + "'");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  return output.json();
}

bool holds(const json& result, const std::string& part) {
  for (const json& claim : result["claims"]) {
    if (claim["claim"].get<std::string>().find(part) != std::string::npos) return claim["holds"];
  }
  ADD_FAILURE() << "no claim on " << part;
  return false;
}

TEST(ReproduceInteraction, Figure6GoesNearerToTheFullGradientWithK) {
  const json result = reproduce("krmd:figure6");
  // A machine may have Fashion-MNIST among its own files.
  EXPECT_THAT(result["notes"].dump(), AnyOf(HasSubstr("12 made-up tasks"), HasSubstr("fashion-mnist with")));
  const json& rows = result["tables"][0]["rows"];
  ASSERT_GE(rows.size(), 5U);
  // One x at the start, where only the estimators differ: nearer with every step that K takes in.
  EXPECT_EQ(rows[0]["loss K=1"], rows[0]["loss K=100"]);
  EXPECT_LT(rows[0]["cos K=1"], rows[0]["cos K=5"]);
  EXPECT_LT(rows[0]["cos K=5"], rows[0]["cos K=25"]);
  EXPECT_LE(rows[0]["cos K=25"], 1 + 1e-6);
  const json& last = rows[rows.size() - 1];
  EXPECT_LT(last["loss K=100"], rows[0]["loss K=100"]);
  EXPECT_LT(last["|full| K=100"], rows[0]["|full| K=100"]);
  const bool same_direction = last["cos K=5"] > 0.99 && last["cos K=25"] > 0.99;
  EXPECT_EQ(holds(result, "both directions end almost the same"), same_direction);
}

TEST(ReproduceFewShot, Table4OnBlobsWhereOmniglotIsNot) {
  const json result = reproduce("krmd:table4");
  EXPECT_THAT(result["notes"].dump(), AllOf(HasSubstr("blobs"), HasSubstr("Not found: omniglot")));
  std::map<std::string, json> rows;
  for (const json& row : result["tables"][0]["rows"]) {
    rows[row["method"].get<std::string>() + "/" + row["its iterations"].get<std::string>()] = row;
  }
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(rows.at("full RMD/5K")["paper's"], "95.8");
  EXPECT_EQ(rows.at("1-RMD/15K")["paper's"], "97.7");
  // K of the T = 50 iterates.
  const int64_t all = rows.at("full RMD/5K")["bytes kept"];
  EXPECT_EQ(rows.at("1-RMD/5K")["bytes kept"].get<int64_t>() * 50, all);
  EXPECT_EQ(rows.at("10-RMD/5K")["bytes kept"].get<int64_t>() * 5, all);
  EXPECT_TRUE(holds(result, "keeps K / T"));
  const auto accuracy = [&](const std::string& row) {
    return std::stod(rows.at(row)["accuracy"].get<std::string>());
  };
  for (const char* method : {"1-RMD", "10-RMD"}) {
    EXPECT_GT(accuracy(std::string(method) + "/15K"), 40) << method;  // chance is 20
  }
}

}  // namespace
}  // namespace bilevel::test
