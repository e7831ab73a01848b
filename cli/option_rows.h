#pragma once
// The options of a command as rows of text, from its field tables: what docs/options.md, the manual pages and
// the completions of shells are made of.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bilevel/fields/options_view.h"

namespace bilevel::cli {

struct OptionRow {
  Field field;
  std::string flag = {};          // "--inner-rate", or "names" where it is typed without a flag
  std::string turned_off = {};    // "--no-flip"; empty: it is never on by itself
  std::string value = {};         // "whole number, at least 0"
  std::string default_text = {};  // "10", "depends", "required", or empty
  std::string help = {}, heading = {};
  bool is_positional = false;

  bool is_flag() const { return field.type == FieldType::flag; }
};

std::vector<OptionRow> option_rows(const CLI::App& command);

// As it is typed: "data show".
std::string full_name(const CLI::App& command);
// The commands of the program, or of `data`; option groups have no name and are none.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
// The one of that name. Throws std::invalid_argument that says what `takes` it ("help --man").
const CLI::App& command_of(const CLI::App& program, const std::string& name, const std::string& takes);

}  // namespace bilevel::cli
