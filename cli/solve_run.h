#pragma once
// solve() as commands run it: in a run folder, with metrics, checkpoints, progress, and an end by a signal
// that another call goes on from.

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <string>

#include "bilevel/algorithms/best_point.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/run/run_folder.h"
#include "cli/common.h"
#include "cli/run_options.h"
#include "cli/solve_text.h"

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
  SolveHooks hooks = {};  // the caller's own record, step and went_back, called after what is done here
  // What the caller keeps beside the state goes into the same checkpoint, and comes out of it.
  std::function<void(Checkpoint& checkpoint)> put = {};
  std::function<void(const Checkpoint& checkpoint)> take = {};
};

// From the checkpoint where there is one, else from the start.
SolveSummary solve_in_folder(const SolveJob& job, RunFolder& folder,
                             const std::optional<Checkpoint>& checkpoint, const Tensor& x = {},
                             const Tensor& w = {});

// The run's last word after solve(): finished, interrupted or failed, with its summary.
int end_solve_run(const CLI::App& command, RunFolder& folder, const SolveSummary& summary,
                  const nlohmann::ordered_json& json);
// The same for a run without an answer: prints what there is.
int end_without_answer(const CLI::App& command, RunFolder& folder, const SolveSummary& summary,
                       const nlohmann::ordered_json& json, const CommonOptions& common);

}  // namespace bilevel::cli
