#pragma once
// `bilevel clean --by noise-model`: a user's table, its output and its files.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "bilevel/problems/cleaning_sets.h"
#include "cli/common.h"
#include "cli/run_options.h"
#include "cli/table_choice.h"

namespace bilevel::cli {

struct CleanTableCommand {
  const CommonOptions& common;
  const RunFlags& run;
  const TableFlags& table;
  std::string data;           // the training file
  int64_t most_suspects = 0;  // 0 = no limit
  uint64_t seed = 0;
};

// `sets` without a column of ones; the validation set may be empty.
void run_clean_table(CLI::App& command, const CleanTableCommand& options, const CleaningSets& sets,
                     int& exit_code);

}  // namespace bilevel::cli
