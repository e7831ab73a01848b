// Files of one job that were not written in the same way: columns in another order are matched by name, and
// what cannot be matched is refused, in every command that reads a user's examples.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/data/npy.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> jobs{"clean --final-steps 20", "tune", "interact --task-column task"};
const std::string few = " --iterations 3 --inner-steps 50 --threads 1 --quiet";

class Tables : public ::testing::Test {
 protected:
  // The same examples with the columns in the order of `columns`.
  std::string write(const std::string& name, int first, const std::vector<std::string>& columns) const {
    std::string text;
    for (int i = first - 1; i < first + 24; ++i) {
      for (const std::string& column : columns) {
        const auto value = [&]() -> std::string {
          if (i < first) return column;
          if (column == "task") return std::to_string(i % 2);
          if (column == "y") return std::to_string(std::sin(i) > 0);
          return std::to_string(column == "a"   ? std::sin(i)
                                : column == "b" ? 2 * std::cos(2 * i)
                                                : i % 7 - 3);
        };
        text += value() + (&column == &columns.back() ? "\n" : ",");
      }
    }
    put(folder_ / name, text);
    return folder_ / name;
  }
  static Output run(const std::string& job, const std::string& train, const std::string& valid,
                    const std::string& test) {
    return run_program(job + few + " --json --label-column y --train " + train + " --valid " + valid +
                       " --test " + test);
  }
  static json results(const Output& output) {
    EXPECT_EQ(output.exit_code, 0) << output.err;
    if (output.exit_code != 0) return {};
    const json all = output.json();
    return {all.at("valid_loss"), all.at("test_accuracy")};
  }

  const TemporaryFolder folder_;
};

TEST_F(Tables, ColumnsInAnotherOrderGiveTheSameAnswer) {
  const std::vector<std::string> order{"task", "a", "b", "c", "y"};
  const std::string train = write("train.csv", 1, order), valid = write("valid.csv", 101, order);
  const std::string test = write("test.csv", 201, order);
  const std::string other_valid = write("valid2.csv", 101, {"c", "y", "b", "task", "a"});
  const std::string other_test = write("test2.csv", 201, {"y", "b", "task", "a", "c"});
  const std::string renamed = write("renamed.csv", 101, {"task", "a", "b", "d", "y"});
  for (const std::string& job : jobs) {
    const json expected = results(run(job, train, valid, test));
    EXPECT_NE(expected[0], std::log(2)) << job;  // it has learned something from the columns
    EXPECT_EQ(results(run(job, train, other_valid, other_test)), expected) << job;
    const Output refused = run(job, train, renamed, test);
    EXPECT_EQ(refused.exit_code, 1) << job;
    EXPECT_THAT(refused.err, HasSubstr(renamed + ": line 1: expected the columns of " + train +
                                       ", found no column 'c' and a column 'd' that it does not have"));
  }
}

TEST_F(Tables, BytesBesideOtherNumbersAreRefused) {
  const Tensor pixels = at::arange(30 * 6).reshape({30, 6}).mul(7).remainder(256);
  write_npy(folder_ / "bytes.npy", pixels.to(at::kByte));
  write_npy(folder_ / "floats.npy", pixels.to(at::kFloat));
  write_npy(folder_ / "labels.npy", at::arange(30).remainder(2));
  const auto files = [&](const std::string& train, const std::string& valid, const std::string& test) {
    std::string text;
    for (const auto& [set, name] : {std::pair{"train", train}, {"valid", valid}, {"test", test}}) {
      text +=
          fmt::format(" --{0} {1} --{0}-labels {2}", set, folder_ / (name + ".npy"), folder_ / "labels.npy");
    }
    return text;
  };
  for (const std::string command : {"clean --final-steps 5", "tune", "interact"}) {
    const auto error = [&](const std::string& arguments, int exit_code) {
      const Output output = run_program(command + few + arguments);
      EXPECT_EQ(output.exit_code, exit_code) << command << arguments << output.err;
      return output.err;
    };
    EXPECT_THAT(
        error(files("bytes", "floats", "bytes"), 1),
        AllOf(HasSubstr(folder_ / "floats.npy" + ": expected bytes (uint8) as in " + folder_ / "bytes.npy"),
              HasSubstr("/ 255")));
    EXPECT_THAT(error(files("floats", "floats", "bytes"), 1),
                HasSubstr(folder_ / "bytes.npy" + ": expected numbers as in " + folder_ / "floats.npy"));
    error(files("bytes", "bytes", "bytes"), 0);
  }
}

}  // namespace
}  // namespace bilevel::test
