#pragma once
// A field table as the flags of a command.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "bilevel/fields/options_view.h"
#include "cli/help.h"

namespace bilevel::cli {

// Each field becomes a flag under the heading of its group; what is typed is checked, read into the options
// and marked as given there.
// The help hides those of the second tier. Those in `positional` are typed without their flags.
void add_flags(CLI::App& command, const OptionsView& options, TieredHelp& help,
               const std::vector<std::string>& positional = {});

// A flag that is on by itself, or may be by a rule, can be turned off: --no-NAME.
bool may_be_on(const OptionsView& options, const Field& field);

}  // namespace bilevel::cli
