#pragma once
// `bilevel tune --by held-out`: a user's table, its output and its files.

#include <CLI/CLI.hpp>
#include <cstdint>

#include "bilevel/problems/regularizer_sets.h"
#include "cli/common.h"
#include "cli/run_options.h"
#include "cli/table_choice.h"

namespace bilevel::cli {

struct TuneTableCommand {
  const CommonOptions& common;
  const RunFlags& run;
  const TableFlags& table;
  int64_t top = 20;
  uint64_t seed = 0;
};

void run_tune_table(CLI::App& command, const TuneTableCommand& options, const TableSets& sets,
                    int& exit_code);

}  // namespace bilevel::cli
