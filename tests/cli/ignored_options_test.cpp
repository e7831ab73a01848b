// An option that would change nothing is refused by name, before anything is computed or written: exit 2, and
// nothing on stdout.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bilevel/algorithms/options.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/fields/option_text.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

void expect_refused(const std::string& arguments, const std::string& words) {
  const TemporaryFolder folder;
  const Output output = run_program(arguments + " --out " + (folder / "run"));
  EXPECT_EQ(output.exit_code, 2) << arguments << "\n" << output.err;
  EXPECT_EQ(output.out, "") << arguments;
  EXPECT_THAT(output.err, HasSubstr(words)) << arguments;
  EXPECT_FALSE(std::filesystem::exists(folder / "run")) << arguments;
}

TEST(RenamedOptions, AreRefusedWithTheirNewName) {
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"search --mixed exact", "option --mixed is unknown; it is now called --cross\n"},
           {"search --series-rate=auto", "option --series-rate is unknown; it is now called --linear-rate\n"},
           {"solve --problem ridge --difference-mixed",
            "option --difference-mixed is unknown; it is now called --difference-cross\n"}}) {
    expect_refused(arguments, words);
  }
  const TemporaryFolder folder;
  std::ofstream(folder / "options.json") << R"({"difference_mixed": true})";
  const Output output = run_program("solve --problem ridge --config " + folder / "options.json");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_THAT(output.err,
              HasSubstr("option --difference-mixed is unknown; it is now called --difference-cross"));
}

TEST(IgnoredOptions, AreRefusedByEveryCommandThatRunsAnAlgorithm) {
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"solve --problem ridge --algorithm itd --damping 0.5", "--damping 0.5 has no effect with itd"},
           {"solve --problem ridge --algorithm krmd --curvature hessian",
            "--curvature hessian has no effect"},
           {"solve --problem ridge --algorithm soba --inner-optimizer adam",
            "--inner-optimizer adam has no effect"},
           {"solve --problem ridge --algorithm fsla --inner-clip 1",
            "--inner-clip 1 has no effect with fsla"},
           {"solve --problem ridge --algorithm mrbo --inner-schedule power",
            "--inner-schedule power has no effect"},
           {"solve --problem ridge --algorithm soba --inner-steps 3", "--inner-steps 3 has no effect"},
           {"solve --problem ridge --inner-momentum 0.5",
            "only --inner-optimizer heavy-ball and nesterov use it"},
           {"solve --problem ridge --algorithm double-loop --method reverse --terms 3",
            "--terms 3 has no effect with double-loop and --method reverse; only neumann, cg"},
           {"solve --problem ridge --algorithm f2sa --on-failure damp", "there is nothing to damp in f2sa"},
           {"solve --problem ridge --accuracy 0.1",
            "--accuracy 0.1 has no effect here; only --method auto uses it"},
           {"compare --problem ridge --algorithms itd,krmd --damping 1", "has no effect with itd, krmd"},
           {"interact --penalty 3", "--penalty 3 has no effect with krmd; only f2sa uses it"},
           {"check --problem ridge --methods reverse --terms 3",
            "--terms has no effect with --methods reverse"},
           {"learn --learner maml --terms 3", "--terms 3 has no effect with --learner maml"},
           {"search --method darts --terms 3", "--terms 3 has no effect with --method darts"},
           {"search --method gdas --inner-steps 3", "--inner-steps 3 has no effect with --method gdas"},
           {"search --most-skips 1", "--most-skips 1 has no effect with --stop none; only skips uses it"},
           {"search --guard none --guard-strength 3", "--guard-strength 3 has no effect with --guard none"},
           {"search --method random-sharing --guard-strength 3",
            "--guard-strength 3 has no effect with --guard none"},
           {"search --method random --guard smoothing", "--guard smoothing: random has no alpha"},
       }) {
    const std::string command = arguments.substr(0, arguments.find(' '));
    if (command == "check") {  // it has no folder
      const Output output = run_program(arguments);
      EXPECT_EQ(output.exit_code, 2) << arguments;
      EXPECT_THAT(output.err, HasSubstr(words));
      continue;
    }
    expect_refused(arguments, words);
  }
}

// The list of the registry and the options of the command line are the same.
TEST(IgnoredOptions, EveryOptionOfTheRegistryIsOneOfTheCommandLine) {
  const std::string help = run_program("solve --help-all").out;
  for (const std::string& option : algorithm_options()) {
    EXPECT_THAT(help, HasSubstr(flag_of(option))) << option;
  }
}

TEST(Schedules, OfWAndVAndXFallApartFromEachOther) {
  const auto loss = [](const std::string& more) {
    const TemporaryFolder folder;
    const Output output = run_program(
        "solve --problem hyper-cleaning --inner-batch 8 --outer-batch 8 --json "
        "--iterations 40 --outer-optimizer sgd --outer-rate 10 --out " +
        (folder / "run") + " --algorithm " + more);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.json().at("outer_loss").get<double>();
  };
  const double constant = loss("soba");
  const double inner = loss("soba --inner-schedule power:0.4");
  const double both = loss("soba --inner-schedule power:0.4 --linear-schedule power:0.4");
  const double all =
      loss("soba --inner-schedule power:0.4 --linear-schedule power:0.4 --outer-schedule power:0.6");
  EXPECT_NE(constant, inner);
  EXPECT_NE(inner, both);
  EXPECT_NE(both, all);
  EXPECT_NE(loss("f2sa"), loss("f2sa --inner-schedule power:0.4"));
  EXPECT_EQ(loss("soba --inner-schedule power"), loss("soba --inner-schedule power:0.5"));
  for (const char* wrong : {"power:2", "power:", "power:a", "power:nan", "steps"}) {
    const std::string value(wrong);
    expect_refused("solve --problem ridge --algorithm soba --inner-schedule " + value,
                   "--inner-schedule " + value + ": ");
  }
}

}  // namespace
}  // namespace bilevel::test
