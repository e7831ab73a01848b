#pragma once
// Which algorithm to use: several of them on one problem, with the same budget, the same search for their
// rates and one yardstick for all. That is the value function, f(x, w*(x)), and the norm of its gradient
// (value_function.h), measured after the runs and not timed. Where the inner problem cannot be
// solved, or is not to be, it is every algorithm's own f(x, w), without a gradient. Never both in one table.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/check/value_function.h"

namespace bilevel {

class ProcessGroup;

enum class Yardstick { value_function, own_loss };
std::string_view name_of(Yardstick yardstick);  // f(x, w*(x)) or own f(x, w)

// A pair of rates that diverges within the budget is never taken while another one is left: the pairs are run
// in the order of what the search found, until one ends well with every seed.
struct RateSearch {
  bool on = true;      // false: the settings' rates are everybody's
  double seconds = 0;  // for one algorithm, all candidates together; 0 = as long as one of its runs
  std::vector<double> outer_rates = {1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4};  // stocBiO's grid
  std::vector<double> inner_factors = {0.1, 1};  // of the settings' inner and linear rates
  void validate() const;
};

// A user-defined algorithm in a comparison: one of the two is given.
struct OwnAlgorithm {
  MakeAlgorithm make = {};                         // for every pair of rates that the search tries
  std::shared_ptr<const Algorithm> as_it_is = {};  // with rates and steps of its own: nothing is searched
  Family family = Family::warm;
};

struct CompareOptions {
  std::vector<std::string> algorithms;  // of the registry
  std::vector<OwnAlgorithm> own = {};   // a user's own, after those; each with a name of its own
  std::vector<uint64_t> seeds = {0, 1, 2};
  AlgorithmSettings settings = {};
  int64_t cold_steps = 100;  // T where w begins again each time and the T steps must solve the inner problem
  // The budget of one run; its seed is not used. A schedule with an end (cosine, linear) ends with the
  // budget: its total_steps are replaced by what a short run says will fit.
  SolveOptions solve = {};
  // Of algorithms made for minibatches.
  StreamOptions stochastic_batches = {.inner_batch = 50, .outer_batch = 50};
  RateSearch search = {};
  bool measure_value = true;  // false: the yardstick is every algorithm's own f(x, w)
  ValueOptions value = {};
  void validate() const;
};

struct ComparedRecord {
  SolveRecord record;
  double value = 0;                          // by the comparison's yardstick
  std::optional<double> gradient_norm = {};  // of the value function, where that is the yardstick
};

struct ComparedRun {
  uint64_t seed = 0;
  SolveSummary summary;  // its records are below
  std::vector<ComparedRecord> records;
};

struct ComparedAlgorithm {
  std::string name;
  Family family = Family::warm;
  int64_t inner_steps = 0;  // these three: 0 where the algorithm was taken as it is
  double inner_rate = 0, outer_rate = 0;
  int64_t candidates = 0;           // pairs of rates that were tried
  int64_t failed_candidates = 0;    // of them, how many diverged in the search
  int64_t dropped_candidates = 0;   // how many diverged, or raised the loss, when they were run in full
  int64_t schedule_iterations = 0;  // the length of a schedule with an end; 0 = there is none
  std::vector<ComparedRun> runs;
};

struct MeanAndSpread {
  double mean = 0;
  double spread = 0;  // standard deviation over the seeds, n - 1 below; 0 with one seed
};
MeanAndSpread mean_and_spread(const std::vector<double>& values);

// What stood when so much of the budget was used: the mean over the seeds of the last record up to there.
struct CurvePoint {
  double used = 0;  // seconds or oracle calls
  MeanAndSpread value;
  std::optional<MeanAndSpread> gradient_norm;  // where the yardstick has one
};
enum class CurveAxis { seconds, oracle_calls };
std::vector<CurvePoint> curve(const ComparedAlgorithm& algorithm, CurveAxis axis, int64_t points);

struct Comparison {
  Yardstick yardstick = Yardstick::value_function;
  std::string why;  // the yardstick is the own loss although the value function was asked for
  std::vector<ComparedAlgorithm> algorithms;
};
using CompareProgress = std::function<void(const std::string& what)>;
// With a group the algorithms are dealt out to its ranks, each of which gets the whole comparison.
Comparison compare_algorithms(const Problem& problem, const CompareOptions& options,
                              const CompareProgress& progress = {}, ProcessGroup* group = nullptr);

}  // namespace bilevel
