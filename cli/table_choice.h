#pragma once
// tune and clean have two ways: the one made for tables, which solves its inner problems to a tolerance and
// needs no rates, and an algorithm of `bilevel list`, as the papers have it. Which one a command line means.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/data/feature_files.h"

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

// A run from before there was a choice goes on the other way.
void keep_earlier_way(CLI::App& command, const std::string& resume, const std::string& other);

// Whether the dense form of every set, and its scores, are small enough to be held in memory.
bool is_small_enough(const std::vector<const Features*>& sets, int64_t classes);

// Throws std::invalid_argument where a fold would be empty, or the copies of all folds would not fit.
void refuse_folds(int64_t folds, const Features& train);

}  // namespace bilevel::cli
