// `bilevel count` as a user meets it.

#include <gmock/gmock.h>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string all_conv =
    "'|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|'";
const std::string darts_cell =
    "'normal: (sep_conv_3x3,0)(sep_conv_3x3,1) (sep_conv_3x3,0)(sep_conv_3x3,1) "
    "(sep_conv_3x3,1)(skip_connect,0) (skip_connect,0)(dil_conv_3x3,2) "
    "reduce: (max_pool_3x3,0)(max_pool_3x3,1) (skip_connect,2)(max_pool_3x3,1) "
    "(max_pool_3x3,0)(skip_connect,2) (skip_connect,2)(max_pool_3x3,1)'";

std::string refusal(const std::string& arguments, int exit_code = 2) {
  const Output output = run_program("count " + arguments);
  EXPECT_EQ(output.exit_code, exit_code) << output.err;
  EXPECT_THAT(output.out, IsEmpty());
  return output.err;
}

TEST(Count, JsonHasExactlyThePromisedNames) {
  const Output output = run_program("count --json --arch " + all_conv);
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(
      output.out,
      "{\"genotypes\":[{\"genotype\":\"|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|"
      "nor_conv_3x3~1|nor_conv_3x3~2|\",\"parameters\":1531546,\"multiply_adds\":220119680}]}\n");
}

TEST(Count, DartsOnBothDataSets) {
  const auto counted = [](const std::string& more) {
    return run_program("count --json --space darts --arch " + darts_cell + more).json().at("genotypes").at(0);
  };
  EXPECT_EQ(counted("").at("parameters"), 3'349'342);
  EXPECT_EQ(counted("").at("multiply_adds"), 528'359'040);
  EXPECT_EQ(counted(" --imagenet").at("parameters"), 4'718'752);
  EXPECT_EQ(counted(" --imagenet").at("multiply_adds"), 529'911'552);
}

TEST(Count, AFileIsReadLineByLine) {
  const TemporaryFolder folder;
  const std::string cell = all_conv.substr(1, all_conv.size() - 2);
  put(folder / "cells", "# two cells\n\n" + cell + "\n  " + cell + "\r\n");
  const json counted = run_program(
                           "count --json --channels 8 --cells 1 --input-channels 1 --image-size 28 "
                           "--classes 4 --file " +
                           folder / "cells")
                           .json();
  ASSERT_EQ(counted.at("genotypes").size(), 2U);
  EXPECT_EQ(counted["genotypes"][0], counted["genotypes"][1]);
  EXPECT_LT(counted["genotypes"][0].at("parameters"), 100'000);
  EXPECT_THAT(
      run_program("count --file " + folder / "cells").out,
      AllOf(HasSubstr("parameters   multiply-adds  genotype"), HasSubstr("1531546       220119680  |")));

  put(folder / "bad", cell + "\n# fine\n|nor_conv_3x3~0|+|\n");
  EXPECT_THAT(refusal("--file " + folder / "bad", 1), HasSubstr("bad: line 3: expected a genotype"));
  put(folder / "empty", "# nothing\n");
  EXPECT_THAT(refusal("--file " + folder / "empty", 1), HasSubstr("no genotype"));
  EXPECT_THAT(refusal("--file " + folder / "nowhere", 1), HasSubstr("nowhere"));
}

TEST(Count, RandomCellsAreThoseOfTheSeed) {
  for (const std::string space : {"nasbench201", "nasbench1shot1-2", "darts"}) {
    SCOPED_TRACE(space);
    const auto drawn = [&](const std::string& more) {
      return run_program("count --json --space " + space + " --random " + more).json().at("genotypes");
    };
    const json four = drawn("4 --seed 1");
    ASSERT_EQ(four.size(), 4U);
    EXPECT_EQ(drawn("2 --seed 1"), json({four[0], four[1]}));
    EXPECT_NE(four[0], four[1]);
    EXPECT_NE(drawn("1 --seed 2")[0], four[0]);
    // What is printed can be given back.
    const json again = run_program("count --json --space " + space + " --arch '" +
                                   four[0].at("genotype").get<std::string>() + "'")
                           .json();
    EXPECT_EQ(again.at("genotypes").at(0), four[0]);
  }
}

TEST(Count, BadOptionsAreNamed) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "--arch TEXT or --file FILE, or give a number with --random N"},
      {"--random -1", "--random -1: must be at least 0"},
      {"--space nasbench301 --arch " + all_conv, "nasbench301"},
      {"--space darts --channels 7 --arch " + darts_cell, "--channels 7: must be even"},
      {"--image-size 0 --arch " + all_conv, "--image-size 0: must be at least 1"},
      {"--imagenet --arch " + all_conv, "only the DARTS space"},
      {"--space nasbench1shot1-1 --image-size 2 --arch 'conv3x3-bn-relu(0) maxpool3x3(0,1) "
       "conv1x1-bn-relu(0,1) maxpool3x3(1,3) output(0,2)'",
       "images are too small"},
  };
  for (const auto& [arguments, expected] : cases) {
    SCOPED_TRACE(arguments);
    EXPECT_THAT(refusal(arguments), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace bilevel::test
