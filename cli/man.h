#pragma once
// The program and its commands as manual pages, from the field tables and the texts of the help.

#include <CLI/CLI.hpp>
#include <string>

namespace bilevel::cli {

std::string program_man(const CLI::App& program);  // bilevel(1)
std::string command_man(const CLI::App& command);  // bilevel-search(1)

// bilevel.1, bilevel-search.1, ... into the folder, which is made.
void write_man_pages(const CLI::App& program, const std::string& folder);

}  // namespace bilevel::cli
