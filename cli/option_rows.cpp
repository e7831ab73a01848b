#include "cli/option_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/fields/option_text.h"
#include "cli/flags.h"
#include "cli/help.h"

namespace bilevel::cli {
namespace {

std::string value_text(const Field& field, const std::string& turned_off) {
  if (!field.choices.empty()) return fmt::format("{}", fmt::join(field.choices, ", "));
  if (field.type == FieldType::flag) {
    return turned_off.empty() ? "" : fmt::format("`{}` turns it off", turned_off);
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
  if (!field.shows_default) return "depends";
  if (field.type == FieldType::flag) return options.words(field).front() == "true" ? "on" : "off";
  const std::vector<std::string> words = options.words(field);
  std::string text = words.empty() || words.front().empty() ? "" : fmt::format("{}", fmt::join(words, ","));
  if (!field.environment.empty())
    text += fmt::format("{}`{}`", text.empty() ? "" : ", or ", field.environment);
  return text;
}

}  // namespace

std::vector<OptionRow> option_rows(const CLI::App& command) {
  std::vector<OptionRow> rows;
  const auto* help = dynamic_cast<const TieredHelp*>(command.get_formatter().get());
  if (help == nullptr) return rows;
  for (const auto& [options, positional] : help->tables()) {
    for (const Field& field : options.fields()) {
      OptionRow row{.field = field};
      row.is_positional = std::find(positional.begin(), positional.end(), field.name) != positional.end();
      row.flag = row.is_positional ? field.name : flag_of(field.name);
      if (row.is_flag() && may_be_on(options, field)) row.turned_off = flag_of("no_" + field.name);
      row.value = value_text(field, row.turned_off);
      row.default_text = default_text(options, field);
      row.help = flag_text(field.help);
      row.heading = flag_text(field.group);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  const bool is_below = parent != nullptr && parent->get_parent() != nullptr;
  return (is_below ? full_name(*parent) + " " : "") + command.get_name();
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* below) { return !below->get_name().empty(); });
}

const CLI::App& command_of(const CLI::App& program, const std::string& name, const std::string& takes) {
  for (const CLI::App* command : commands_of(program)) {
    if (command->get_name() == name) return *command;
  }
  throw std::invalid_argument(fmt::format("{} takes at most one command, not '{}'", takes, name));
}

}  // namespace bilevel::cli
