// `bilevel query` and `bilevel draw` as a user runs them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string none = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|";
const std::string skip =
    "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|";
const std::string one_shot =
    "conv3x3-bn-relu(0) maxpool3x3(0,1) conv1x1-bn-relu(0,1) maxpool3x3(1,3) output(2,4)";

// A table of two cells.
class Query : public ::testing::Test {
 protected:
  Query() {
    put("table.csv",
        "arch,cifar10_valid,cifar10_test,cifar100_valid,cifar100_test,imagenet16_valid,imagenet16_test,"
        "params_m,flops_m\n" +
            none + ",10,20,30,40,50,60,0.07,7.78\n" + skip + ",15,18,30,41,50,60.5,0.07,7.78\n");
    put("table101.csv",
        "hash,vertices,adj_bits,ops,params,test_acc\n"
        "00005c142e6f48ac74fdcf73e3439874,7,126465,3m331,8555530,92.0606\n");
  }
  void put(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  Output query(const std::string& arguments, bool whole = false) const {
    return run_program("query --benchmark '" + folder_ / "table.csv" + "' " +
                       (whole ? "" : "--allow-missing ") + arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(Query, AnswersInJson) {
  const Output output = query("--arch '" + none + "' --arch '" + skip + "' --json");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const auto json = output.json();
  EXPECT_EQ(json["benchmark"], "nasbench201");
  EXPECT_EQ(json["space"], "nasbench201");
  EXPECT_EQ(json["cells"], 2);
  ASSERT_EQ(json["results"].size(), 2U);
  const auto& first = json["results"][0];
  EXPECT_EQ(first["genotype"], none);
  EXPECT_EQ(first["cifar10_valid"], 10);
  EXPECT_EQ(first["flops_m"], 7.78);
  EXPECT_EQ(first["regret"]["cifar10_valid"], 5);
  EXPECT_EQ(first["regret"]["cifar10_test"], 0);
  EXPECT_FALSE(first["regret"].contains("params_m"));
  EXPECT_EQ(json["results"][1]["regret"]["cifar10_test"], 2);
  EXPECT_FALSE(first.contains("hash"));
}

TEST_F(Query, AnswersPeople) {
  const Output one = query("--arch '" + skip + "'");
  EXPECT_THAT(one.out,
              AllOf(HasSubstr(skip), HasSubstr("cifar10_test           18.0000   20.0000    2.0000")));
  const Output best = query("--best 5 --by cifar10_test");
  EXPECT_EQ(best.exit_code, 0) << best.err;
  EXPECT_LT(best.out.find(none), best.out.find(skip));
  const Output by_default = query("--best 1 --json");
  EXPECT_EQ(by_default.json()["results"][0]["genotype"], skip);  // by imagenet16_test
}

TEST_F(Query, ReadsAFileOfGenotypes) {
  put("cells.txt", "# two cells\n\n" + none + "\r\n  " + skip + "\n");
  const Output output = query("--file '" + folder_ / "cells.txt" + "' --json");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(output.json()["results"].size(), 2U);
  put("bad.txt", none + "\n|none~0\n");
  const Output bad = query("--file '" + folder_ / "bad.txt" + "'");
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, AllOf(HasSubstr("bad.txt: line 2"), HasSubstr("position 7: expected '|'")));
  EXPECT_THAT(bad.out, IsEmpty());
  put("empty.txt", "\n# nothing\n");
  EXPECT_THAT(query("--file '" + folder_ / "empty.txt" + "'").err, HasSubstr("it has no genotype"));
}

TEST_F(Query, AnswersByHash) {
  const std::string table = "query --benchmark '" + folder_ / "table101.csv" + "' ";
  const Output output = run_program(table + "--hash 00005c142e6f48ac74fdcf73e3439874 --json");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const auto row = output.json()["results"][0];
  EXPECT_EQ(row["params"], 8555530);
  EXPECT_EQ(row["test_acc"], 92.0606);
  EXPECT_EQ(row["graph"], "7 126465 3m331");
  EXPECT_FALSE(row.contains("genotype"));
  EXPECT_TRUE(row["params"].is_number_integer());
  EXPECT_EQ(row["hash"], "00005c142e6f48ac74fdcf73e3439874");
  const Output missing = run_program(table + "--space nasbench1shot1-1 --arch '" + one_shot + "'");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("found none; the table holds 1 of NAS-Bench-101's"));
  EXPECT_THAT(run_program(table + "--space nasbench201 --arch '" + none + "'").err,
              HasSubstr("a table of nasbench101 knows only cells of nasbench1shot1"));
}

TEST_F(Query, SaysWhatIsWrong) {
  const auto refused = [&](const std::string& arguments, bool whole = false) {
    const Output output = query(arguments, whole);
    EXPECT_NE(output.exit_code, 0) << arguments;
    EXPECT_THAT(output.out, IsEmpty());
    return output.err;
  };
  EXPECT_THAT(refused(""), HasSubstr("--arch, --file, --hash or --best"));
  EXPECT_THAT(refused("--arch '" + none + "'", true), HasSubstr("expected all 15625 cells, found 2"));
  EXPECT_THAT(refused("--arch nothing"), HasSubstr("position 0: expected '|', found 'nothing'"));
  EXPECT_THAT(refused("--best 2 --by flops"), HasSubstr("'flops' is no accuracy"));
  EXPECT_THAT(refused("--best 0"), HasSubstr("--best 0: must be at least 1"));
  EXPECT_THAT(refused("--best 1 --arch '" + none + "'"), HasSubstr("cannot be combined with --arch"));
  EXPECT_THAT(refused("--by cifar10_test --arch '" + none + "'"),
              HasSubstr("--by selects the column for --best"));
  EXPECT_THAT(refused("--hash 00"), HasSubstr("only NAS-Bench-101"));
  EXPECT_THAT(refused("--space nasbench301 --arch x"), HasSubstr("search space 'nasbench301' is unknown"));
  EXPECT_THAT(run_program("query --best 1 --benchmark /nowhere.csv").err, HasSubstr("/nowhere.csv"));
}

TEST(Draw, WritesTheGraphAsTextAndAsAPicture) {
  const TemporaryFolder folder;
  const std::string cell = "draw --space nasbench1shot1-1 --arch '" + one_shot + "' --out '";
  const Output text = run_program(cell + folder / "cell.dot" + "' --json");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.json()["genotype"], one_shot);
  EXPECT_THAT(read_text(folder / "cell.dot"),
              AllOf(HasSubstr("cell1 -> cell2;"), HasSubstr("conv1x1-bn-relu")));
  if (std::system("command -v dot >/dev/null") != 0) GTEST_SKIP() << "graphviz is not installed";
  const Output picture = run_program(cell + folder / "cell.svg" + "'");
  ASSERT_EQ(picture.exit_code, 0) << picture.err;
  EXPECT_THAT(read_text(folder / "cell.svg"), AllOf(HasSubstr("<svg"), HasSubstr(">3: conv1x1")));
}

TEST(Draw, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const Output name = run_program("draw --arch '" + none + "' --out cell.jpg");
  EXPECT_EQ(name.exit_code, 2);
  EXPECT_THAT(name.err, HasSubstr("--out cell.jpg: its name must end in .svg"));
  EXPECT_THAT(run_program("draw --space darts --arch x --out cell.svg").err, HasSubstr("expected 'normal'"));
  const char* program = std::getenv("BILEVEL_PROGRAM");
  ASSERT_NE(program, nullptr);
  // No graphviz in an empty PATH; the text form needs none.
  const std::string out = folder / "cell.svg";
  const std::string bare = "env -i PATH=/nowhere '" + std::string(program) + "' draw --arch '" + none +
                           "' --out '" + out + "' 2>'" + folder / "err" + "' >/dev/null";
  EXPECT_NE(std::system(bare.c_str()), 0);
  EXPECT_THAT(read_text(folder / "err"), HasSubstr("apt-get install graphviz"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace bilevel::test
