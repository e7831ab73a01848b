#pragma once
// The search loop: epochs of algorithm steps on a supernet, with what people need to see after each, an end
// before a collapse, and a state that can be saved at any step. The hypergradients and the algorithms are the
// library's own.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/linear_solves.h"
#include "bilevel/nas/benchmark.h"
#include "bilevel/nas/genotype.h"
#include "bilevel/nas/guards/guard.h"
#include "bilevel/nas/search_options.h"
#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

struct EpochRecord {
  int64_t epoch = 0;                      // from 1
  Genotype genotype;                      // by the largest weights
  std::vector<double> operation_shares;   // of the genotype's edges, in the space's order
  std::vector<double> operation_weights;  // mean softmax weight, in the same order
  int64_t skips = 0;
  double search_loss = 0;  // mean f on the epoch's validation batches; NaN where alpha rested
  double valid_loss = 0, valid_accuracy = 0;  // of the supernet, without augmentation
  double direction_norm = 0;                  // mean |hypergradient| of the epoch; NaN where alpha rested
  double eigenvalue = 0;                      // dominant, of the validation loss in alpha; NaN = not measured
  double implicit_over_direct =
      0;             // mean |implicit term| / |direct term| of the hypergradient; NaN = there was none
  double guard = 0;  // what the guard was at in the epoch (lambda of beta decay, ...); NaN = there was none
  double rate = 0, linear_rate = 0;   // of the weights and of the Neumann series at the epoch's end
  BenchmarkValues benchmark, regret;  // of the genotype in the table, where one was given
  std::string benchmark_note;         // why there is none
  Tensor alpha;                       // flat, CPU, double
  double seconds = 0;                 // since the search began
};

// A mean that grows on the device: reading it there and then would stop the queue.
struct RunningMean {
  Tensor sum;  // a number
  int64_t count = 0;

  void add(const Tensor& value);
  double value() const;  // NaN where nothing was added
};

// Everything that is needed to resume a search.
struct SearchState {
  AlgorithmState algorithm;
  std::map<std::string, int64_t> streams;  // positions
  int64_t epoch = 0, step = 0;             // the next step to take
  double linear_rate = 0;
  RunningMean loss, norm, ratio;  // over the epoch so far: search_loss, direction_norm, implicit_over_direct

  void begin_epoch();  // empties the means
  std::vector<EpochRecord> history;
  StatusCounts statuses;  // how often the linear solve, or the formula, ended in which way
  OracleCounts counts;
  double seconds = 0;
};

struct SearchHooks {
  std::function<void(const SearchState&, int64_t steps_per_epoch)> step;  // after every step
  std::function<void(const EpochRecord&)> epoch;
  std::function<void(const std::string&)> message;  // of what comes after the epochs
  // After a step when save_seconds have passed since the last time, at the end of every epoch, and where the
  // search is interrupted.
  std::function<void(const SearchState&)> save = {};
  double save_seconds = 10;
  std::function<bool()> interrupted = {};  // asked after every step
};

enum class SearchEnd { not_run, epochs_done, collapse, interrupted, failed };
std::string_view name_of(SearchEnd end);

struct SearchSummary {
  SearchEnd end = SearchEnd::not_run;
  std::string reason;        // of a collapse or a failure
  int64_t chosen_epoch = 0;  // whose alpha gave the genotype
  Genotype genotype;
  Tensor alpha, mixture;  // CPU, double, of that epoch
  std::vector<EpochRecord> history;
  StatusCounts statuses;  // of the linear solves
  OracleCounts counts;
  double seconds = 0;
  std::vector<std::string> notes;
};

// A user-defined step of alpha, in place of the method's: made at the start of every epoch, from the options
// with their schedule and from the linear rate, where 0 means the weights' rate.
using MakeSearchRule =
    std::function<std::unique_ptr<Algorithm>(const SearchOptions& options, double linear_rate)>;

class Search {
 public:
  // `benchmark` may be null; both must outlive the search. Throws std::invalid_argument where options do not
  // fit. A problem that was divided among ranks is searched by all of them together, who get the same bits.
  Search(SupernetProblem& problem, const SearchOptions& options, const Benchmark* benchmark,
         MakeSearchRule own_rule = {});

  SearchState begin() const;
  SearchSummary run(SearchState state, const SearchHooks& hooks);
  int64_t steps_per_epoch() const { return steps_per_epoch_; }

 private:
  struct Run;
  void step_of(Run& run);
  struct EpochEnd {
    SearchEnd end;  // epochs_done: the epoch is
    std::string reason = {};
  };
  EpochEnd run_epoch(Run& run);
  void end_epoch(Run& run);
  void choose_genotype(Run& run, SearchSummary& summary);
  void step(SearchState& state, Oracle& oracle, Streams& streams);
  void set_epoch(SearchState& state, Oracle& oracle, Streams& streams);

  // search_record.cpp
  EpochRecord record(const SearchState& state, Streams& streams) const;
  void describe_chosen(const SearchState& state, SearchSummary& summary) const;  // alpha, genotype, mixture
  // Why the search is no use, where most linear solves have failed; else empty.
  std::string failed_solves(const SearchState& state, bool at_end) const;
  double dominant_eigenvalue(const SearchState& state, Streams& streams) const;

  std::unique_ptr<Algorithm> make_rule(double linear_rate) const;
  // nullopt if interrupted; a resumed run selects again.
  std::optional<Genotype> select(const SearchState& state, Oracle& oracle, Streams& streams,
                                 const SearchHooks& hooks);
  Genotype best_of_samples(const SearchState& state, const SearchHooks& hooks) const;

  SupernetProblem& supernet_;
  // The supernet's derivatives: graphs on a GPU, its tape on a CPU, sums over ranks; null = its own.
  std::unique_ptr<SupernetEngine> engine_;
  std::unique_ptr<Guard> guard_;      // around that; null = none
  std::unique_ptr<Problem> problem_;  // with weight decay
  SearchOptions options_;
  const Benchmark* benchmark_;
  MakeSearchRule own_rule_;  // empty = the method's
  int64_t steps_per_epoch_ = 0;
  double guard_value_ = 0;  // of the present epoch
  std::unique_ptr<Algorithm> rule_;
};

}  // namespace bilevel::nas
