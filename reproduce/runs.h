#pragma once
// Algorithms side by side on a cleaning job, each with the same time: what the items on stocBiO's figure 4
// and FSLA's figures 2 to 6 share.

#include <functional>
#include <string>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/problems/cleaning_model.h"
#include "bilevel/problems/cleaning_sets.h"
#include "reproduce/figure.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {

struct CleaningJob {
  CleaningSets sets;
  CleaningModel model;
};

struct TimedRun {
  std::string label;  // as the paper's legend has it
  std::string algorithm;
  AlgorithmSettings settings = {};
  StreamOptions batches = {};
};

// What a curve is drawn against. log_: the logarithm to the base 10, as FSLA's figures have the time, and
// where runs differ by powers of ten.
enum class RunAxis { iterations, seconds, log_seconds, calls, log_calls, samples, log_samples };
std::string label_of(RunAxis axis);
double position(const SolveRecord& record, RunAxis axis);

struct TimedResult {
  std::string label;
  SolveSummary summary;
  std::vector<double> test_losses;                      // at each record
  double test_loss = 0, test_accuracy = 0;              // at the end
  const SolveRecord& at_seconds(double seconds) const;  // the last record up to a time
  double loss() const { return summary.records.back().outer_loss; }
  bool ended_well() const { return !ended_badly(summary.reason); }
  double end(RunAxis axis) const { return position(summary.records.back(), axis); }
  // By straight lines between the records; NaN where it ended badly.
  double loss_at(RunAxis axis, double place) const;
  Points validation_curve(RunAxis axis) const;
  Points test_curve(RunAxis axis) const;
};

// How long every run of an item may be; what is reached first ends it.
struct RunLengths {
  double seconds = 0;
  int64_t iterations = 0, records = 0;
};

// A run that leaves the finite numbers is a result, too: its summary says so.
TimedResult run_timed(const CleaningJob& job, const TimedRun& run, const RunLengths& lengths,
                      const ReproduceOptions& options);

// Time is processor time where there is one thread on the CPU: other work on the machine does not change it.
bool takes_processor_time(const ReproduceOptions& options);

// The rate of the lowest last validation loss among the trials that stayed finite; what each of them reached
// goes into `tried`. Throws std::runtime_error where none did.
double rate_of_lowest_loss(const std::vector<double>& rates,
                           const std::function<SolveSummary(double rate)>& trial, std::string& tried);

// A grid of them, shared by the ranks where there are some.
struct TimedCell {
  const CleaningJob* job;
  TimedRun run;
  uint64_t seed;
};
std::vector<TimedResult> run_timed(const std::vector<TimedCell>& grid, const RunLengths& lengths,
                                   const ReproduceOptions& options);

// One row: label, iterations, seconds, oracle calls, samples read, validation loss at a third of the time and
// at the end, test loss and accuracy, and how it ended.
Json timed_row(const TimedResult& result, double seconds);

// A named set where the options say it is, with their seed and type; the rest as the paper has it is the
// item's.
NamedCleaningOptions named_set(const std::string& set, const ReproduceOptions& options);

}  // namespace bilevel::reproduce
