#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/option_rows.h"

namespace bilevel::cli {

std::string TieredHelp::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  all_ = mode == CLI::AppFormatMode::All;
  return CLI::Formatter::make_help(app, std::move(name), CLI::AppFormatMode::Normal);
}

std::string TieredHelp::make_group(std::string group, bool is_positional,
                                   std::vector<const CLI::Option*> options) const {
  if (!all_) std::erase_if(options, [&](const CLI::Option* option) { return hidden_.contains(option); });
  return options.empty() ? "" : CLI::Formatter::make_group(std::move(group), is_positional, options);
}

// A heading and its options.
std::string TieredHelp::make_expanded(const CLI::App* group) const {
  std::string text;
  for (const CLI::Option* option : group->get_options()) {
    const bool is_help = option == group->get_help_ptr() || option == group->get_help_all_ptr();
    const bool shows = !is_help && (all_ || !hidden_.contains(option));
    if (shows) text += make_option(option, false);
  }
  return text.empty() ? "" : fmt::format("\n{}:\n{}", group->get_group(), text);
}

namespace {

std::string escaped(std::string text) {
  for (size_t i = text.find('|'); i != std::string::npos; i = text.find('|', i + 2)) text.insert(i, "\\");
  return text;
}

}  // namespace

std::string command_markdown(const CLI::App& command) {
  std::string text =
      fmt::format("## bilevel {}\n\n{}.\n\n| option | value | default | |\n|---|---|---|---|\n",
                  full_name(command), command.get_description());
  std::string group;
  for (const OptionRow& row : option_rows(command)) {
    if (row.heading != group) {
      group = row.heading;
      text += fmt::format("| *{}* | | | |\n", group.empty() ? "other options" : escaped(group));
    }
    text += fmt::format("| `{}` | {} | {} | {} |\n", row.flag, escaped(row.value), escaped(row.default_text),
                        escaped(row.help));
  }
  for (const CLI::App* below : commands_of(command)) text += "\n" + command_markdown(*below);
  return text;
}

std::string program_markdown(const CLI::App& program) {
  std::string text =
      "# Options\n\n"
      "All options of all commands. `bilevel help --markdown > docs/options.md` writes this page from the "
      "field tables, and a test compares\n"
      "the two. In configuration files and in C++ an option has the name of its field: `inner_rate` for "
      "`--inner-rate`. A default that reads\n"
      "\"depends\" follows from the data, the problem or other options.\n";
  for (const CLI::App* command : commands_of(program)) text += "\n" + command_markdown(*command);
  return text;
}

std::string TieredHelp::make_footer(const CLI::App* app) const {
  std::string footer = CLI::Formatter::make_footer(app);
  if (all_ || hidden_.empty()) return footer;
  return fmt::format("\n{} more options: bilevel {} --help-all\n{}", hidden_.size(), full_name(*app), footer);
}

std::shared_ptr<TieredHelp> add_help_flags(CLI::App& command) {
  auto help = std::make_shared<TieredHelp>();
  help->column_width(30);
  command.formatter(help);
  command.set_help_flag("-h,--help", "the most used options");
  command.set_help_all_flag("--help-all", "all options");
  return help;
}

}  // namespace bilevel::cli
