#pragma once
// The one loop that runs every algorithm: iterations until a budget is used up or there is nothing left to
// do, with records of how it went along the way. A record costs time and derivatives of nobody: its own
// evaluations are neither counted nor timed.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/core/problem.h"

namespace bilevel {

struct SolveOptions {
  int64_t iterations = 1000;       // at most; 0 records the start and stops
  double seconds = 0;              // of the algorithm's own time; 0 = no limit
  int64_t oracle_calls = 0;        // gradients and products together; 0 = no limit
  double direction_tolerance = 0;  // stop where |direction| falls below this; 0 = never
  int64_t records = 50;  // about how many, evenly along the budget; the start and the end are always there
  bool keep_points = false;  // records hold x and w
  uint64_t seed = 0;         // of the starting points and of all batches
  StreamOptions batches = {};
  void validate() const;
};

// How it stood before iteration `iteration` (0 = the start).
struct SolveRecord {
  int64_t iteration = 0;
  double seconds = 0;  // the algorithm's own
  OracleCounts counts;
  double outer_loss = 0;       // f on the full set at (x, w)
  double direction_norm = -1;  // of the last direction; negative = none yet
  std::map<std::string, double> metrics;
  Tensor x, w;  // where keep_points asks for them
};

enum class StopReason { not_run, iterations, seconds, oracle_calls, converged, stopped, not_finite };
std::string_view name_of(StopReason reason);

struct SolveSummary {
  std::string algorithm;
  StopReason reason = StopReason::not_run;
  std::string message;   // why, where it ended badly
  AlgorithmState state;  // the last good one
  std::vector<SolveRecord> records;
  OracleCounts counts;
  double seconds = 0;                       // the algorithm's own
  double recording_seconds = 0;             // of the records
  std::map<std::string, int64_t> statuses;  // how often the linear solve ended in which way
};

// Called with every record, and with the state behind it; false stops the run.
using SolveCallback = std::function<bool(const SolveRecord& record, const AlgorithmState& state)>;

// From the problem's own start (of options.seed), or from the given x and w where they are defined.
SolveSummary solve(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                   const SolveCallback& callback = {}, const Tensor& x = {}, const Tensor& w = {});

}  // namespace bilevel
