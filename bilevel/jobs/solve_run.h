#pragma once
// solve() as jobs run it: in a RunContext, with metrics, checkpoints, progress, and an end by an interruption
// that another call resumes from.

#include <c10/core/Device.h>

#include <functional>
#include <string>

#include "bilevel/algorithms/best_point.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

struct SolveRun {
  const Problem& problem;
  const Algorithm& algorithm;
  const SolveOptions& options;
  std::string job = "solve";  // for the line of progress
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

// From the context's checkpoint where there is one, else from the start. Where the context has a group, its
// ranks divide every batch among them.
SolveSummary solve_in(RunContext& context, const SolveRun& run, const Tensor& x = {}, const Tensor& w = {});

// The best point is not part of the algorithm's state, but of the run's: for put and take above.
void put_best(Checkpoint& checkpoint, const BestPoint& best);
BestPoint take_best(const Checkpoint& checkpoint, c10::Device device);

// False: it was interrupted or ended badly.
inline bool has_answer(const SolveSummary& summary) {
  return summary.reason != StopReason::interrupted && !ended_badly(summary.reason);
}

// What the ranks sent each other, beside a result's counts.
void add_communication(const RunContext& context, Json& json);
// Throws OptionError where several processes would do the same work.
void refuse_ranks(const RunContext& context, const std::string& what, const std::string& instead);

// Finished, interrupted or failed.
JobEnd end_of(const SolveSummary& summary);

}  // namespace bilevel
