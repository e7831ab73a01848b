#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "cli/flags.h"

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

// As it is typed: "data show".
std::string full_name(const CLI::App* app) {
  const CLI::App* parent = app->get_parent();
  const bool is_below = parent != nullptr && parent->get_parent() != nullptr;
  return (is_below ? full_name(parent) + " " : "") + app->get_name();
}

std::string escaped(std::string text) {
  for (size_t i = text.find('|'); i != std::string::npos; i = text.find('|', i + 2)) text.insert(i, "\\");
  return text;
}

// "whole number, at least 0"
std::string value_text(const OptionsView& options, const Field& field) {
  if (!field.choices.empty()) return fmt::format("{}", fmt::join(field.choices, ", "));
  if (field.type == FieldType::flag) {
    return may_be_on(options, field) ? fmt::format("`{}` turns it off", flag_of("no_" + field.name)) : "";
  }
  std::string text = "text";
  if (field.type == FieldType::whole) text = "whole number";
  if (field.type == FieldType::seed) text = "seed";
  if (field.type == FieldType::number) text = "number";
  if (field.is_list) text += "s";
  const bool bounded = field.type == FieldType::whole || field.type == FieldType::number;
  const std::string range = bounded ? field.range.text(field.type == FieldType::whole) : "";
  return range.empty() ? text : text + ", " + range;
}

std::string default_text(const OptionsView& options, const Field& field) {
  if (field.is_required) return "required";
  if (!field.shows_default) return "by a rule";
  if (field.type == FieldType::flag) return options.words(field).front() == "true" ? "on" : "off";
  const std::vector<std::string> words = options.words(field);
  std::string text = words.empty() || words.front().empty() ? "" : fmt::format("{}", fmt::join(words, ","));
  if (!field.environment.empty())
    text += fmt::format("{}`{}`", text.empty() ? "" : ", or ", field.environment);
  return text;
}

}  // namespace

std::string TieredHelp::markdown() const {
  std::string text = "| option | value | default | |\n|---|---|---|---|\n";
  std::string group;
  for (const auto& [options, positional] : tables_) {
    for (const Field& field : options.fields()) {
      if (field.group != group) {
        group = field.group;
        text += fmt::format("| *{}* | | | |\n", group.empty() ? "besides" : escaped(flag_text(group)));
      }
      const bool typed_alone =
          std::find(positional.begin(), positional.end(), field.name) != positional.end();
      text += fmt::format("| `{}` | {} | {} | {} |\n", typed_alone ? field.name : flag_of(field.name),
                          escaped(value_text(options, field)), escaped(default_text(options, field)),
                          escaped(flag_text(field.help)));
    }
  }
  return text;
}

std::string command_markdown(const CLI::App& command) {
  std::string text = fmt::format("## bilevel {}\n\n{}.\n", full_name(&command), command.get_description());
  if (const auto* help = dynamic_cast<const TieredHelp*>(command.get_formatter().get()); help != nullptr) {
    text += "\n" + help->markdown();
  }
  for (const CLI::App* below : command.get_subcommands({})) {
    if (!below->get_name().empty()) text += "\n" + command_markdown(*below);
  }
  return text;
}

std::string program_markdown(const CLI::App& program) {
  std::string text =
      "# Options\n\n"
      "All options of all commands. `bilevel help --markdown > docs/options.md` writes this page from the "
      "field "
      "tables, and a test compares\nthe two. In configuration files and in C++ an option has the name of its "
      "field: `inner_rate` for `--inner-rate`.\n";
  for (const CLI::App* command : program.get_subcommands({})) text += "\n" + command_markdown(*command);
  return text;
}

std::string TieredHelp::make_footer(const CLI::App* app) const {
  std::string footer = CLI::Formatter::make_footer(app);
  if (all_ || hidden_.empty()) return footer;
  return fmt::format("\n{} more options: bilevel {} --help-all\n{}", hidden_.size(), full_name(app), footer);
}

std::shared_ptr<TieredHelp> add_help_flags(CLI::App& command) {
  auto help = std::make_shared<TieredHelp>();
  help->column_width(30);
  command.formatter(help);
  command.set_help_flag("-h,--help", "the options that people use first");
  command.set_help_all_flag("--help-all", "all options");
  return help;
}

}  // namespace bilevel::cli
