// Every option of every command stands in docs/options.md, and the page of each command leads there.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "cli/program.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;

std::string doc(const std::string& name) {
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  return read_text(std::string(source != nullptr ? source : ".") + "/docs/" + name);
}

struct Command {
  std::string name;
  std::vector<std::string> flags;
};

void collect(const CLI::App& app, const std::string& name, std::vector<Command>& found) {
  if (!app.get_name().empty()) found.push_back({name, {}});
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& flag : option->get_lnames()) {
      if (flag != "help" && flag != "help-all") found.back().flags.push_back("--" + flag);
    }
    if (option->get_positional()) found.back().flags.push_back(option->get_name());
  }
  for (const CLI::App* below : app.get_subcommands({})) {
    collect(*below, below->get_name().empty() ? name : name + " " + below->get_name(), found);
  }
}

std::vector<Command> commands() {
  int exit_code = 0;
  const auto program = cli::make_program(exit_code);
  std::vector<Command> found;
  for (const CLI::App* command : program->get_subcommands({})) collect(*command, command->get_name(), found);
  return found;
}

TEST(OptionDocs, ThePageIsWhatTheProgramPrints) {
  const Output output = run_program("help --markdown");
  ASSERT_EQ(output.exit_code, 0) << output.err;
  EXPECT_EQ(doc("options.md"), output.out)
      << "docs/options.md is out of date: run build/release/bilevel help --markdown > docs/options.md";
}

// From the flags of the parser, not from the tables that the page is made of.
TEST(OptionDocs, EveryFlagOfEveryCommandIsInItsSection) {
  const std::string page = doc("options.md");
  size_t flags = 0;
  for (const Command& command : commands()) {
    const size_t begin = page.find("## bilevel " + command.name + "\n");
    ASSERT_NE(begin, std::string::npos) << command.name;
    const std::string section = page.substr(begin, page.find("\n## ", begin) - begin);
    for (const std::string& flag : command.flags) {
      const std::string row =
          flag.starts_with("--no-") ? " | `" + flag + "` turns it off | " : "| `" + flag + "` | ";
      EXPECT_TRUE(section.find(row) != std::string::npos ||
                  section.find("| `" + flag + "` | ") != std::string::npos)
          << command.name << " " << flag;
      ++flags;
    }
  }
  EXPECT_GE(flags, 400U);
}

TEST(OptionDocs, EveryFlagOfEveryCommandIsInItsHelp) {
  for (const Command& command : commands()) {
    const std::string help = run_program(command.name + " --help-all").out;
    for (const std::string& flag : command.flags) {
      const bool has =
          help.find("\n  " + flag) != std::string::npos || help.find("," + flag) != std::string::npos;
      EXPECT_TRUE(has) << command.name << " " << flag;
    }
  }
}

TEST(OptionDocs, EveryFlagOfEveryCommandIsInItsManualPage) {
  for (const Command& command : commands()) {
    const std::string top = command.name.substr(0, command.name.find(' '));
    const std::string page = run_program("help " + top + " --man").out;
    for (std::string flag : command.flags) {
      for (size_t i = flag.find('-'); i != std::string::npos; i = flag.find('-', i + 2)) flag.insert(i, "\\");
      EXPECT_THAT(page, HasSubstr("\\fB" + flag + "\\fR")) << command.name;
    }
  }
}

TEST(OptionDocs, ThePageOfEveryCommandLeadsToItsOptions) {
  const std::map<std::string, std::string> pages = {
      {"adapt", "learn.md"},        {"check", "estimators.md"},
      {"clean", "clean.md"},        {"compare", "algorithms.md"},
      {"completion", "runs.md"},    {"count", "train.md"},
      {"data", "images.md"},        {"data get", "images.md"},
      {"data show", "images.md"},   {"diagnose", "diagnose.md"},
      {"draw", "genotypes.md"},     {"interact", "interact.md"},
      {"launch", "distributed.md"}, {"learn", "learn.md"},
      {"predict", "predict.md"},    {"list", "jobs.md"},
      {"export", "export.md"},      {"query", "genotypes.md"},
      {"report", "reports.md"},     {"reproduce", "reproduce.md"},
      {"runs", "runs.md"},          {"search", "search.md"},
      {"show", "runs.md"},          {"solve", "algorithms.md"},
      {"train", "train.md"},        {"tune", "tune.md"}};
  for (const Command& command : commands()) {
    ASSERT_TRUE(pages.contains(command.name)) << command.name << " has no page: give it one above";
    std::string anchor = "options.md#bilevel-" + command.name;
    std::replace(anchor.begin(), anchor.end(), ' ', '-');
    EXPECT_THAT(doc(pages.at(command.name)), HasSubstr("](" + anchor + ")")) << command.name;
  }
}

TEST(OptionDocs, OneCommandCanBeAskedFor) {
  const Output one = run_program("help count --markdown");
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_THAT(one.out, HasSubstr("## bilevel count\n"));
  EXPECT_THAT(doc("options.md"), HasSubstr(one.out));
  const Output none = run_program("help cuont --markdown");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("help --markdown takes at most one command, not 'cuont'"));
  EXPECT_THAT(run_program("help cuont --man").err,
              HasSubstr("help --man takes at most one command, not 'cuont'"));
}

}  // namespace
}  // namespace bilevel::test
