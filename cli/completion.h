#pragma once
// What a shell offers when a user of the program presses Tab: scripts for bash and zsh, made from the field
// tables. They hold all names, so that completing starts no process.

#include <CLI/CLI.hpp>
#include <string>

namespace bilevel::cli {

std::string bash_completion(const CLI::App& program);
std::string zsh_completion(const CLI::App& program);

}  // namespace bilevel::cli
