#pragma once
// The program as a function: in a process of its own, and inside a test.

#include <string>
#include <vector>

namespace bilevel::cli {

// Parses, runs, shows errors on stderr, and returns the exit code.
int run_command_line(int argc, char** argv);

// The same without a process: what it would print is appended to `out` and `err`.
int run(const std::vector<std::string>& arguments, std::string& out, std::string& err);

}  // namespace bilevel::cli
