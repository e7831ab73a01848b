// The library's errors as the program shows them.
#include "cli/option_names.h"

#include <gtest/gtest.h>

#include <string>

#include "cli/program.h"

namespace bilevel::test {
namespace {

std::string shown(const std::string& command, const std::string& message) {
  int exit_code = 0;
  return cli::with_option_names(*cli::make_program(exit_code)->get_subcommand(command), message);
}

TEST(OptionNames, aFieldIsShownAsTheOptionThatWasTyped) {
  EXPECT_EQ(shown("search", "train_size = 7: must be at most 5"), "--train-size 7: must be at most 5");
  EXPECT_EQ(shown("solve", "solve: direction_tolerance = -1: must be finite and at least 0"),
            "--tolerance -1: must be finite and at least 0");
  EXPECT_EQ(shown("solve", "outer: rate = 0: must be finite and above 0"),
            "--outer-rate 0: must be finite and above 0");
  EXPECT_EQ(shown("solve", "inner clip_norm = -1: must be finite"), "--inner-clip -1: must be finite");
  EXPECT_EQ(shown("count", "--channels = 7: must be even"), "--channels 7: must be even");
  EXPECT_EQ(shown("train", "test_labels is missing: test_images and test_labels go together"),
            "--test-labels is missing: --test-images and --test-labels go together");
}

TEST(OptionNames, whatIsNoOptionOfTheCommandStays) {
  for (const std::string message :
       {"list: no_such_field = 3: must be 4", "a plain message", "most_repairs = -1: must be at least 0",
        "data/train_size: expected 5 bytes", "nowhere/test_labels.npy is missing", "x = ", ""}) {
    EXPECT_EQ(shown("search", message), message);
  }
}

}  // namespace
}  // namespace bilevel::test
