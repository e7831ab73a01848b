#pragma once
// How a job on a table ends by a signal. It takes seconds and keeps no state: who resumes it repeats it.

#include <CLI/CLI.hpp>
#include <string>

#include "bilevel/run/run_folder.h"
#include "bilevel/tables/cross_fit.h"
#include "bilevel/tables/table_hooks.h"
#include "cli/common.h"
#include "cli/progress.h"

namespace bilevel::cli {

struct TableInterrupted {};

// Hooks that show the progress and throw TableInterrupted after a signal.
TableHooks interruptible(Progress& progress, const std::string& command);

// The run's last word, and its exit code.
int end_interrupted(const CLI::App& command, RunFolder& folder, const CommonOptions& common);

// Fits that ended before their tolerance make what was chosen by them less sure.
void warn_of_unconverged(const FitCounts& counts, const CommonOptions& common);

std::string csv_quoted(const std::string& name);

}  // namespace bilevel::cli
