// What a help text gives as a default is what a run without that option used: config.json of the run is
// asked.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using json = nlohmann::json;

bool is_tiered(const std::string& command) {
  return run_program(command + " --help").out.find("--help-all") != std::string::npos;
}

// What stands behind an option's type: "  --terms INT=10   K: ...", "  --dtype TEXT:{float,double}=double";
// CLI11 2.4 writes "INT [10]". Lists are left out.
std::map<std::string, std::string> defaults_in_help(const std::string& command) {
  const Output help = run_program(command + (is_tiered(command) ? " --help-all" : " --help"));
  EXPECT_EQ(help.exit_code, 0) << command;
  static const std::regex line(
      R"(^ +(--[a-z0-9-]+) (TEXT|INT|UINT|FLOAT)(:\{[^}]*\}|:[A-Z]+ in \[[^\]]*\]|:[A-Z]+)?(?:=(\S+)| \[([^\]\s]*)\]))");
  std::map<std::string, std::string> found;
  std::istringstream lines(help.out);
  for (std::string text; std::getline(lines, text);) {
    std::smatch parts;
    const bool is_list = text.size() > 3 && text.compare(text.size() - 3, 3, "...") == 0;
    if (!is_list && std::regex_search(text, parts, line))
      found[parts[1]] = parts[4].matched ? parts[4] : parts[5];
  }
  return found;
}

bool same(const std::string& shown, const std::string& used) {
  if (shown == used) return true;
  char *shown_end = nullptr, *used_end = nullptr;
  const double a = std::strtod(shown.c_str(), &shown_end), b = std::strtod(used.c_str(), &used_end);
  return !shown.empty() && !used.empty() && *shown_end == 0 && *used_end == 0 && a == b;
}

struct SmallJob {
  std::string command, arguments;
  friend std::ostream& operator<<(std::ostream& out, const SmallJob& job) { return out << job.command; }
};
class HelpDefaults : public ::testing::TestWithParam<SmallJob> {};

// Forty examples of two classes that a line parts.
void write_table(const std::string& path) {
  std::ofstream file(path);
  for (int i = 0; i < 40; ++i) file << (i % 7) - 3 + 4 * (i % 2) << ',' << i % 5 << ',' << i % 2 << '\n';
}

TEST_P(HelpDefaults, AreThoseThatARunUses) {
  const auto& [command, arguments] = GetParam();
  const TemporaryFolder folder;
  write_table(folder / "table.csv");
  const std::string typed = std::regex_replace(arguments, std::regex("TABLE"), folder / "table.csv");
  const Output run = run_program(command + " " + typed + " --out '" + folder / "run" + "'");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json config = config_of(folder / "run");
  int compared = 0;
  for (const auto& [flag, shown] : defaults_in_help(command)) {
    const std::string option = field_name(flag);
    if (config.at("options").contains(option) || !config.at("effective").contains(option)) continue;
    const json& value = config.at("effective").at(option);
    const std::string used = value.is_string() ? value.get<std::string>() : value.dump();
    EXPECT_TRUE(same(shown, used)) << command << ": help says " << option << "=" << shown << ", the run used "
                                   << used;
    ++compared;
  }
  EXPECT_GE(compared, 5) << "the help text or config.json is no longer read as it is written";
}

INSTANTIATE_TEST_SUITE_P(
    Commands, HelpDefaults,
    ::testing::Values(
        SmallJob{"solve", "--problem ridge --iterations 1"}, SmallJob{"interact", "--iterations 1"},
        SmallJob{"compare", "--problem toy --algorithms aid-cg --iterations 2 --outer-rate 0.01"},
        SmallJob{"clean", "--train TABLE --valid TABLE --iterations 1"},
        SmallJob{"tune", "--train TABLE --iterations 1"},
        SmallJob{"learn",
                 "--data blobs --learner aid --queries 5 --filters 4 --meta-batch 2 --valid-tasks 2 "
                 "--test-tasks 2 --iterations 1"}),
    [](const auto& row) { return row.param.command; });

TEST(Seeds, OneNumberIsRefusedWithTheTwoThingsItMayMean) {
  const std::string compare = "compare --problem toy --algorithms aid-cg --iterations 2 --outer-rate 0.01 ";
  const Output two = run_program(compare + "--seeds 2");
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_THAT(two.err, HasSubstr("--seeds 2: write 2-2 for seed number 2, or 0-1 for 2 seeds"));
  const Output one = run_program(compare + "--seeds 1");
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err, HasSubstr("--seeds 1: write 1-1 for seed number 1, or 0-0 for 1 seed"));
  for (const char* bad : {"two", "3-1", "0,,1", "0-2000", "-1", "1.5"}) {
    const Output output = run_program(compare + "--seeds " + bad);
    EXPECT_EQ(output.exit_code, 2) << bad;
    EXPECT_THAT(output.err,
                HasSubstr(std::string("--seeds ") + bad + ": must be a list such as 0-2 or 0,3,7"))
        << bad;
  }
  const auto seeds_of = [&](const std::string& list) {
    const json report = run_program(compare + "--json --seeds " + list).json();
    std::vector<int> seeds;
    for (const json& run : report.at("algorithms").at(0).at("runs")) seeds.push_back(run.at("seed"));
    return seeds;
  };
  EXPECT_EQ(seeds_of("2-2"), std::vector<int>{2});
  EXPECT_EQ(seeds_of("0"), std::vector<int>{0});
  EXPECT_EQ(seeds_of("0,3-4"), (std::vector<int>{0, 3, 4}));
  EXPECT_THAT(run_program(compare + "--seeds 0,3").out, HasSubstr("seeds 0, 3,"));
}

}  // namespace
}  // namespace bilevel::test
