// The field tables of all commands, whatever commands there are: options -> JSON -> options, every field a
// flag in --help-all and a row of docs/options.md, wrong values refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "cli/help.h"
#include "cli/program.h"
#include "tests/cli/program.h"
#include "tests/fields/walk.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;

struct CommandTable {
  std::string command;  // "data show"
  OptionsView options;
  std::vector<std::string> positional;
};

// Of one program, with values as they are before anything was typed.
class AllTables {
 public:
  AllTables() : program_(cli::make_program(exit_code_)) { collect(*program_, ""); }
  const std::vector<CommandTable>& all() const { return all_; }

 private:
  void collect(const CLI::App& app, const std::string& name) {
    for (const CLI::App* below : app.get_subcommands({})) {
      if (below->get_name().empty()) continue;  // a heading of options
      const std::string command = name.empty() ? below->get_name() : name + " " + below->get_name();
      const auto* help = dynamic_cast<const cli::TieredHelp*>(below->get_formatter().get());
      if (help == nullptr) throw std::logic_error(command + " has flags that are of no table");
      for (const auto& [options, positional] : help->tables()) all_.push_back({command, options, positional});
      collect(*below, command);
    }
  }

  int exit_code_ = 0;
  std::unique_ptr<CLI::App> program_;
  std::vector<CommandTable> all_;
};

TEST(FieldWalk, MeetsEveryCommand) {
  std::set<std::string> commands;
  const AllTables tables;
  for (const CommandTable& table : tables.all()) commands.insert(table.command);
  for (const char* name :
       {"adapt",     "check",  "clean",    "compare", "count", "data",  "data get", "data show", "diagnose",
        "draw",      "export", "interact", "launch",  "learn", "list",  "predict",  "query",     "report",
        "reproduce", "runs",   "search",   "show",    "solve", "train", "tune"}) {
    EXPECT_TRUE(commands.contains(name)) << name;
  }
}

TEST(FieldWalk, OptionsToJsonToOptions) {
  const AllTables first, second;
  ASSERT_EQ(first.all().size(), second.all().size());
  for (size_t i = 0; i < first.all().size(); ++i) {
    expect_round_trip(first.all()[i].command, first.all()[i].options, second.all()[i].options);
  }
}

TEST(FieldWalk, WrongValuesAreRefusedByName) {
  const AllTables tables;
  for (const CommandTable& table : tables.all()) expect_refusals_by_name(table.command, table.options);
}

TEST(FieldWalk, EveryFieldIsInTheHelpAndInTheDocumentation) {
  const AllTables tables;
  const char* source = std::getenv("BILEVEL_SOURCE_DIR");
  const std::string page = read_text(std::string(source != nullptr ? source : ".") + "/docs/options.md");
  for (const CommandTable& table : tables.all()) {
    const std::string help = run_program(table.command + " --help-all").out;
    const size_t begin = page.find("## bilevel " + table.command + "\n");
    ASSERT_NE(begin, std::string::npos) << table.command;
    const std::string section = page.substr(begin, page.find("\n## ", begin) - begin);
    for (const Field& field : table.options.fields()) {
      const bool is_positional =
          std::find(table.positional.begin(), table.positional.end(), field.name) != table.positional.end();
      const std::string typed = is_positional ? field.name : flag_of(field.name);
      EXPECT_THAT(help, HasSubstr("\n  " + typed)) << table.command;
      EXPECT_THAT(section, HasSubstr("| `" + typed + "` | ")) << table.command;
    }
  }
}

}  // namespace
}  // namespace bilevel::test
