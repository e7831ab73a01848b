#pragma once
// The one loop that runs every algorithm: iterations until a budget is used up or there is nothing left to
// do, with records of how it went along the way. Recording is neither timed nor counted.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/failure.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/core/problem.h"

namespace bilevel {

struct SolveOptions {
  int64_t iterations = 1000;  // at most; 0 records the start and stops
  double seconds = 0;         // of the algorithm's own time; 0 = no limit
  // Time is the process's time on its processors, all threads together, instead of the clock's: on one thread
  // of a busy machine it is what a quiet one would take.
  bool processor_time = false;
  int64_t oracle_calls = 0;        // gradients and products together; 0 = no limit
  double direction_tolerance = 0;  // stop where |direction| falls below this; 0 = never
  int64_t records = 50;  // about how many, evenly along the budget; the start and the end are always there
  bool keep_points = false;  // records hold x and w
  uint64_t seed = 0;         // of the starting points and of all batches
  StreamOptions batches = {};
  // What the algorithm was made of (registry.h): with it a failure names the rate that is to blame, and can
  // be repaired. A repair makes the algorithm again from other settings: by `make`, or where that is empty by
  // its name in the registry. A user-defined algorithm, or a DoubleLoop with a user-defined estimator,
  // needs `make`.
  std::optional<AlgorithmSettings> settings = {};
  MakeAlgorithm make = {};
  OnFailure on_failure = OnFailure::stop;
  int64_t most_repairs = 20;  // of one run: a rate that was halved so often was not the cause
  void validate() const;
};

// How it stood before iteration `iteration` (0 = the start).
struct SolveRecord {
  int64_t iteration = 0;
  double seconds = 0;  // the algorithm's own
  OracleCounts counts;
  double outer_loss = 0;       // f on the full set at x and the inner solution w
  double direction_norm = -1;  // of the last direction; negative = none yet
  ErrorBound bound;            // on its error, where the algorithm was asked for one
  std::map<std::string, double> metrics;
  // The inner solution (Algorithm::inner_solution) with the x of the state; gone after the record's hook,
  // unless keep_points asks for them.
  Tensor x, w;
  Tensor x_of_w;  // where w was made; undefined: at the x before the last step
};

enum class StopReason {
  not_run,
  iterations,
  seconds,
  oracle_calls,
  converged,
  stopped,      // the hook asked for it
  not_finite,   // the last good state is kept
  interrupted,  // in the middle: another call resumes from there
  failed,  // still finite, but no use: it diverges, or nothing comes through w; the last good state is kept
};
std::string_view name_of(StopReason reason);
inline bool ended_badly(StopReason reason) {
  return reason == StopReason::not_finite || reason == StopReason::failed;
}

struct SolveSummary {
  std::string algorithm;
  StopReason reason = StopReason::not_run;
  std::string message;    // why, where it ended badly
  AlgorithmState state;   // the last good one
  Tensor inner_solution;  // of that state, trained on g alone; made when the run ends
  std::vector<SolveRecord> records;
  OracleCounts counts;
  double seconds = 0;                       // the algorithm's own
  double recording_seconds = 0;             // of the records
  std::map<std::string, int64_t> statuses;  // how often the linear solve ended in which way
  std::vector<SolveFailure> failures;       // the last one is why it stopped, where it ended badly
};

// Everything that is needed to resume a run, to the same bits as if it had never stopped.
struct SolveState {
  SolveSummary so_far;                     // its records without their points
  std::map<std::string, int64_t> streams;  // positions
  double direction_norm = -1;              // of the last direction
  ErrorBound bound;                        // on its error
  int64_t recorded = 0;                    // of the evenly spaced records, how many are there
  FailureWatch watch;                      // what counts as out of hand
  AlgorithmState good;                     // the last one from which an iteration went well
  Adjustment adjustment;                   // by repairs
  bool stopped = false;                    // by a hook
};

struct SolveHooks {
  // With every record, and with the state behind it; false stops the run.
  std::function<bool(const SolveRecord& record, const AlgorithmState& state)> record = {};
  // After every iteration: the state, and the norm of the direction that led to it.
  std::function<void(const AlgorithmState& state, double direction_norm, double seconds)> step = {};
  // After a repair: the state that it continues from, which is not that of the last record or step.
  std::function<void(const AlgorithmState& state)> went_back = {};
  // Between two iterations when save_seconds have passed since the last time, and at every end.
  std::function<void(const SolveState& state)> save = {};
  std::function<bool()> interrupted = {};  // asked after every iteration; true ends with a save
  double save_seconds = 10;                // saving takes a moment, and a few seconds' work is soon repeated
};

// From the problem's own start (of options.seed), or from the given x and w where they are defined.
SolveSummary solve(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                   const SolveHooks& hooks = {}, const Tensor& x = {}, const Tensor& w = {});
// From where an earlier run with the same problem, algorithm and options was.
SolveSummary continue_solve(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                            SolveState state, const SolveHooks& hooks = {});

}  // namespace bilevel
