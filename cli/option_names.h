#pragma once
// The library's errors name its own fields ("train_size = 7: must be at most 5"); a user typed an option.

#include <string>

namespace CLI {
class App;
}

namespace bilevel::cli {

// "--train-size 7: must be at most 5", where the command has that option; a name that is no option of it
// stays.
std::string with_option_names(const CLI::App& command, const std::string& message);

}  // namespace bilevel::cli
