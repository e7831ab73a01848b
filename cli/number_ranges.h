#pragma once
// The range of every option that takes a number, checked where the command line (or the file of --config) is
// read: before any data are, and with the option's own name. The library checks its own fields too, by their
// own names and for every caller; what depends on the data is left to it.

#include <CLI/CLI.hpp>

namespace bilevel::cli {

// Adds a check to every option of every command that takes a number. What is in no table must be finite.
void check_number_ranges(CLI::App& program);

// Whether CLI11 reads a number for it, or several.
bool takes_number(const CLI::Option& option);

}  // namespace bilevel::cli
