#pragma once
// Which algorithm to use: several of them on one problem, with the same budget, the same search for their
// rates and the same yardstick. The yardstick is the value function, f(x, w*(x)), and the norm of its
// gradient, both found by Newton's method after the runs: an algorithm's own w would flatter the one whose w
// runs ahead of x.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"

namespace bilevel {

struct RateSearch {
  bool on = true;      // false: the settings' rates are everybody's
  double seconds = 0;  // for one algorithm, all candidates together; 0 = as long as one of its runs
  std::vector<double> outer_rates = {1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4};  // stocBiO's grid
  std::vector<double> inner_factors = {0.1, 1};  // of the settings' inner and linear rates
  void validate() const;
};

struct CompareOptions {
  std::vector<std::string> algorithms;
  std::vector<uint64_t> seeds = {0, 1, 2};
  AlgorithmSettings settings = {};
  int64_t cold_steps = 100;  // T of the rules that begin anew each time: theirs must solve the inner problem
  SolveOptions solve = {};   // the budget of one run; its seed is not used
  StreamOptions stochastic_batches = {.inner_batch = 50, .outer_batch = 50};  // of rules made for minibatches
  RateSearch search = {};
  // Solve the inner problem at every record. Newton's method is dense up to 1000 unknowns; beyond that a
  // record may take long, and the algorithm's own f(x, w) is the yardstick.
  bool measure_value = true;
  void validate() const;
};

struct ComparedRecord {
  SolveRecord record;
  double value = -1;          // f(x, w*(x)); f(x, w) where the inner problem was not solved
  double gradient_norm = -1;  // of the value function; negative = not measured
};

struct ComparedRun {
  uint64_t seed = 0;
  SolveSummary summary;  // its records are below
  std::vector<ComparedRecord> records;
};

struct ComparedAlgorithm {
  std::string name;
  Family family = Family::warm;
  int64_t inner_steps = 0;
  double inner_rate = 0, outer_rate = 0;
  int64_t candidates = 0;         // pairs of rates that were tried
  int64_t failed_candidates = 0;  // of them, how many left the finite numbers
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
  MeanAndSpread value, gradient_norm;
};
enum class CurveAxis { seconds, oracle_calls };
std::vector<CurvePoint> curve(const ComparedAlgorithm& algorithm, CurveAxis axis, int64_t points);

using CompareProgress = std::function<void(const std::string& what)>;
std::vector<ComparedAlgorithm> compare_algorithms(const Problem& problem, const CompareOptions& options,
                                                  const CompareProgress& progress = {});

}  // namespace bilevel
