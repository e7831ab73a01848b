#pragma once
// tune and clean have two ways: the one made for tables, which solves its inner problems to a tolerance and
// needs no rates, and an algorithm of `bilevel list`, as the papers have it. Which one a command line means.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace bilevel::cli {

struct TableFlags {
  std::string by = "auto";
  int64_t folds = 5;
  bool no_standardize = false;
};

// --by WAY|OTHER, --folds, --no-standardize.
void add_table_options(CLI::App& command, TableFlags& flags, const std::string& way,
                       const std::string& other);

// The options of algorithms that were given, and those of `more`.
std::vector<std::string> given_algorithm_options(const CLI::App& command,
                                                 const std::vector<std::string>& more);

// Whether the way made for tables is meant: asked for, or nothing says the other. Throws
// std::invalid_argument for an option that the way would ignore.
bool means_table(const CLI::App& command, const TableFlags& flags, const std::string& way,
                 const std::string& other, const std::vector<std::string>& of_other, bool possible);

// Throws std::invalid_argument where a fold would be empty.
void refuse_folds(int64_t folds, int64_t rows);

}  // namespace bilevel::cli
