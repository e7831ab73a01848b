#include "cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bilevel/fields/option_text.h"

namespace bilevel::cli {
namespace {

using Words = std::vector<std::string>;

// A ConversionError: CLI11 would put the option's name before a ValidationError once more.
void give(OptionsView options, const Field& field, const Words& words) {
  try {
    options.give(field, words);
  } catch (const std::invalid_argument& error) {
    throw CLI::ConversionError(flag_text(marked_message(error)));
  }
}

std::string type_name(const Field& field) {
  std::string name = "TEXT";
  if (field.type == FieldType::whole) name = "INT";
  if (field.type == FieldType::seed) name = "UINT";
  if (field.type == FieldType::number) name = "FLOAT";
  if (!field.choices.empty()) name += fmt::format(":{{{}}}", fmt::join(field.choices, ","));
  return name;
}

const CLI::Option* add_flag(CLI::App& group, OptionsView options, const Field& field,
                            const Words& positional) {
  const bool is_positional = std::find(positional.begin(), positional.end(), field.name) != positional.end();
  const std::string flag = is_positional ? field.name : flag_of(field.name), help = flag_text(field.help);
  CLI::Option* option = nullptr;
  if (field.type == FieldType::flag) {
    const std::string names =
        may_be_on(options, field) ? fmt::format("{},!{}", flag, flag_of("no_" + field.name)) : flag;
    option = group.add_flag_function(
        names, [options, &field](int64_t count) { give(options, field, {count > 0 ? "true" : "false"}); },
        help);
  } else if (field.is_list) {
    option = group.add_option_function<Words>(
        flag, [options, &field](const Words& words) { give(options, field, words); }, help);
    // What stands behind a list may be an argument that has no flag.
    if (field.is_repeated || (!positional.empty() && !is_positional)) option->allow_extra_args(false);
    if (!field.is_repeated && !is_positional) option->delimiter(',');
  } else {
    option = group.add_option_function<std::string>(
        flag, [options, &field](const std::string& word) { give(options, field, {word}); }, help);
  }
  if (field.type != FieldType::flag) {
    option->type_name(type_name(field));
    const Words words = options.words(field);
    if (field.shows_default && !words.empty() && !words.front().empty()) {
      option->default_str(fmt::format("{}", fmt::join(words, ",")));
    }
  }
  if (field.is_required) option->required();
  if (!field.environment.empty()) option->envname(field.environment);
  return option;
}

}  // namespace

bool may_be_on(const OptionsView& options, const Field& field) {
  return !field.shows_default || options.words(field).front() == "true";
}

void add_flags(CLI::App& command, const OptionsView& options, TieredHelp& help, const Words& positional) {
  std::map<std::string, CLI::App*> groups = {{"", &command}};
  for (const Field& field : options.fields()) {
    CLI::App*& group = groups[field.group];
    if (group == nullptr) group = command.add_option_group(field.group);
    const CLI::Option* flag = add_flag(*group, options, field, positional);
    if (field.tier != FieldTier::common && flag->nonpositional()) help.hide(flag);
  }
}

}  // namespace bilevel::cli
