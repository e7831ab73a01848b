#pragma once
// solve() as commands run it: in a run folder, with metrics, checkpoints, progress, and an end by a signal
// that another call goes on from.

#include <functional>
#include <optional>
#include <string>

#include "bilevel/algorithms/solve.h"
#include "bilevel/run/run_folder.h"
#include "cli/common.h"
#include "cli/run_options.h"

namespace bilevel::cli {

struct SolveJob {
  const Problem& problem;
  const Algorithm& algorithm;
  const SolveOptions& options;
  const RunFlags& run;
  const CommonOptions& common;
  std::string command = "solve";  // for the line of progress
  // What the run is about, beside the sizes: a run that is resumed on anything else is refused.
  nlohmann::json data = nullptr;
  // What x is to people, as its records call it: weights of examples, regularisers. Empty = x itself.
  std::string learned_name = "hyperparameters";
  std::function<Tensor(const Tensor& x)> learned = {};
  SolveHooks hooks = {};  // the caller's own record and step, called after what is done here
};

// From the checkpoint where there is one, else from the start.
SolveSummary solve_in_folder(const SolveJob& job, RunFolder& folder,
                             const std::optional<Checkpoint>& checkpoint, const Tensor& x = {},
                             const Tensor& w = {});

// The run's last word after solve(): finished, interrupted or failed, with its summary.
int end_solve_run(const CLI::App& command, RunFolder& folder, const SolveSummary& summary,
                  const nlohmann::ordered_json& json);

}  // namespace bilevel::cli
