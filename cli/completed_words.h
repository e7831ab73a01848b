#pragma once
// Which words may stand behind an option.

#include <string>
#include <vector>

#include "cli/option_rows.h"

namespace bilevel::cli {

struct CompletedWords {
  std::vector<std::string> words = {};
  bool files = false;     // or the name of a file or a folder
  bool by_comma = false;  // several, with commas between them
};

// Nothing for numbers, and for flags, which have no value.
CompletedWords words_behind(const CLI::App& command, const OptionRow& row);

}  // namespace bilevel::cli
