// The library's errors as the program shows them.
#include "cli/option_names.h"

#include <gmock/gmock.h>

#include <string>

#include "cli/program.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

std::string shown(const std::string& command, const std::string& message) {
  int exit_code = 0;
  return cli::with_option_names(*cli::make_program(exit_code)->get_subcommand(command), message);
}

TEST(OptionNames, aFieldIsShownAsTheOptionThatWasTyped) {
  EXPECT_EQ(shown("search", "train_size = 7: must be at most 5"), "--train-size 7: must be at most 5");
  EXPECT_EQ(shown("solve", "solve: records = 0: must be at least 1"), "--records 0: must be at least 1");
  EXPECT_EQ(shown("solve", "outer_rate = 0: must be finite and above 0"),
            "--outer-rate 0: must be finite and above 0");
  EXPECT_EQ(shown("solve", "inner_clip = -1: must be finite"), "--inner-clip -1: must be finite");
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

std::string refusal(const std::string& line, int exit_code);

// Whatever the library calls them: their own bounds come first.
TEST(OptionNames, thatDifferFromTheirFieldsAreTheOnesTyped) {
  EXPECT_EQ(refusal("solve --problem ridge --tolerance -1", 2),
            "bilevel: --tolerance -1: must be at least 0");
  EXPECT_EQ(refusal("solve --problem ridge --budget-seconds -1", 2),
            "bilevel: --budget-seconds -1: must be at least 0");
  EXPECT_EQ(refusal("solve --problem ridge --budget-calls -1", 2),
            "bilevel: --budget-calls -1: must be at least 0 and at most 1000000000000");
  EXPECT_THAT(refusal("solve --problem ridge --algorithm f2sa --penalty-growth -1", 2),
              ::testing::HasSubstr("--penalty-growth -1: must be"));
  EXPECT_THAT(refusal("solve --problem ridge --algorithm amigo --terms 0", 2),
              ::testing::HasSubstr("--terms 0: must be at least 1"));
  EXPECT_THAT(refusal("search --alpha-beta1 1", 2), ::testing::HasSubstr("--alpha-beta1 1: must be"));
  EXPECT_THAT(refusal("search --alpha-decay -1", 2), ::testing::HasSubstr("--alpha-decay -1: must be"));
}

std::string refusal(const std::string& line, int exit_code) {
  const Output output = run_program(line);
  EXPECT_EQ(output.exit_code, exit_code) << line;
  EXPECT_EQ(output.out, "") << line;
  return output.err.substr(0, output.err.find('\n'));
}

TEST(MistypedOptions, comeBeforeTheOnesThatAreMissingForThatReason) {
  EXPECT_EQ(refusal("predict --run nowhere --dta X", 2),
            "bilevel: option --dta is unknown; did you mean --data?");
  EXPECT_EQ(refusal("predict --dta=X", 2), "bilevel: option --dta is unknown; did you mean --data?");
  EXPECT_EQ(refusal("predict --run nowhere", 2), "bilevel: --data is required");
}

TEST(MistypedOptions, areNamedInTheOrderInWhichTheyWereTyped) {
  EXPECT_EQ(refusal("solve --problm ridge --zzzzzzzz 3 --iteratons 5", 2),
            "bilevel: option --problm is unknown; did you mean --problem?; option --zzzzzzzz is unknown; "
            "option --iteratons is unknown; did you mean --iterations?");
  EXPECT_EQ(refusal("solve ridge --iterations 5", 2), "bilevel: 'ridge': no option precedes it");
}

TEST(MissingFiles, areNamedByTheirOption) {
  EXPECT_EQ(refusal("train --genotype nowhere.json --data images", 1),
            "bilevel: --genotype nowhere.json: there is no such file; check the path");
}

}  // namespace
}  // namespace bilevel::test
