// `bilevel data show` and what the commands say about a set that no package ships; listing and fetching are
// tested with `bilevel clean`.

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DataShow, PrintsSizesClassesMeanAndDeviation) {
  const TemporaryFolder folder;
  // IDX: ten images of 1 x 2 pixels, 0 and 10 in the first five, 20 and 30 in the others.
  const std::string images =
      put(folder / "images", std::string("\0\0\x08\x03\0\0\0\x0a\0\0\0\x01\0\0\0\x02", 16) +
                                 std::string("\0\n\0\n\0\n\0\n\0\n", 10) +
                                 "\x14\x1e\x14\x1e\x14\x1e\x14\x1e\x14\x1e");
  const std::string labels =
      put(folder / "labels", std::string("\0\0\x08\x01\0\0\0\x0a", 8) + "\3\3\3\3\3\4\4\4\4\4");
  const std::string arguments = "data show --data '" + images + "' --labels '" + labels + "'";
  const nlohmann::json shown = run_program(arguments + " --json").json();
  EXPECT_EQ(shown.at("train"), 8);
  EXPECT_EQ(shown.at("test"), 2);
  EXPECT_EQ(shown.at("channels"), 1);
  EXPECT_EQ(shown.at("height"), 1);
  EXPECT_EQ(shown.at("width"), 2);
  EXPECT_DOUBLE_EQ(shown.at("mean").at(0), 15);
  EXPECT_DOUBLE_EQ(shown.at("std").at(0), std::sqrt(125.0));  // (225 + 25 + 25 + 225) / 4
  EXPECT_EQ(shown.at("classes"),
            nlohmann::json::parse(
                R"([{"name": "3", "train": 4, "test": 1}, {"name": "4", "train": 4, "test": 1}])"));
  EXPECT_THAT(run_program(arguments).out,
              AllOf(HasSubstr("8 training and 2 test images, 2 x 1 pixels, grey, 2 classes"),
                    HasSubstr("mean 15.00, std 11.18")));
  EXPECT_EQ(run_program(arguments + " --image-size 4 --json").json().at("held_out"), shown.at("held_out"));
  EXPECT_EQ(shown.at("held_out").at("images"), 2);
}

TEST(DataShow, NamesWhatIsMissing) {
  const TemporaryFolder folder;
  const Output unknown = run_program("data show --data svhn");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err,
              AllOf(HasSubstr("--data svhn: must be one of"), HasSubstr("a folder of class folders")));
  EXPECT_EQ(run_program("data show").exit_code, 2);
  for (const std::string& command : {"data show --data cifar100 --data-dir '" + folder / "sets" + "'",
                                     "data get cifar100 --to '" + folder / "sets" + "'"}) {
    const Output missing = run_program(command);
    EXPECT_EQ(missing.exit_code, 1);
    EXPECT_THAT(missing.err, AllOf(HasSubstr("no package ships it"), HasSubstr("cifar-100-binary.tar.gz"),
                                   HasSubstr(folder / "sets/cifar100")));
  }
}

// All of CIFAR-100, in the folder that its archive makes, with pixels by a script of another language, which
// sums them up too.
TEST(DataShow, ReadsCifar100AsItsArchiveUnpacks) {
  if (std::system("python3 --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "SKIPPED: python3, which writes the records, is not installed";
  }
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  ASSERT_NE(source, nullptr) << "BILEVEL_SOURCE_DIR is not set: run by ctest, or set it";
  const TemporaryFolder folder;
  ASSERT_EQ(std::system(("python3 '" + std::string(source) + "/tests/data/write_cifar.py' '" + folder / "" +
                         "' 100 50000 10000")
                            .c_str()),
            0);
  const nlohmann::json expected = nlohmann::json::parse(read_text(folder / "expected.json"));
  for (const char* named : {"", "cifar-100-binary"}) {
    const Output output = run_program("data show --data cifar100 --data-dir '" + folder / named + "' --json");
    ASSERT_EQ(output.exit_code, 0) << output.err;
    const nlohmann::json shown = output.json();
    EXPECT_EQ(shown.at("train"), 50000);
    EXPECT_EQ(shown.at("test"), 10000);
    EXPECT_EQ(shown.at("channels"), 3);
    ASSERT_EQ(shown.at("classes").size(), 100U);
    for (const nlohmann::json& one : shown.at("classes")) {
      EXPECT_EQ(one.at("train"), 500) << one;
      EXPECT_EQ(one.at("test"), 100) << one;
    }
    for (size_t channel = 0; channel < 3; ++channel) {
      EXPECT_NEAR(shown.at("mean").at(channel), expected.at("mean").at(channel).get<double>(), 1e-9);
      EXPECT_NEAR(shown.at("std").at(channel), expected.at("std").at(channel).get<double>(), 1e-9);
    }
  }
  std::filesystem::resize_file(folder / "cifar-100-binary/test.bin", 30739999);
  const Output cut = run_program("data show --data cifar100 --data-dir '" + folder / "" + "'");
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_THAT(cut.err, HasSubstr("is incomplete: test.bin has 30739999 bytes, expected 30740000"));
}

}  // namespace
}  // namespace bilevel::test
