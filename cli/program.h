#pragma once
// The whole program but for its process: the tests ask it for every option that there is.

#include <CLI/CLI.hpp>
#include <memory>

namespace bilevel::cli {

// All commands with their options. Parsing runs the command that was chosen, which sets `exit_code` or
// throws.
std::unique_ptr<CLI::App> make_program(int& exit_code);

}  // namespace bilevel::cli
