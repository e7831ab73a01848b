#pragma once
// One run as `bilevel show` prints it.

#include <string>

namespace bilevel::cli {

// Throws where there is no run or its files are damaged, naming them.
void show_run(const std::string& folder, bool json);

}  // namespace bilevel::cli
