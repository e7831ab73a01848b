#pragma once
// The job `tune`: one regulariser per feature for softmax regression, found on examples that it was not
// fitted to. For another model, solve() your own problem.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/algorithms/best_point.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/core/tensor.h"
#include "bilevel/jobs/example_sets.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/run_problem.h"
#include "bilevel/jobs/tune_options.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"
#include "bilevel/tables/tune_table.h"

namespace bilevel {

// Losses and accuracies in percent, by the names that summary.json has: "test_loss"; of the squared loss
// "test_rmse" and "test_r2" in place of accuracies. Those of a set that there is not are left out.
using TuneScores = std::map<std::string, double>;

// By an algorithm.
struct TuneSearch {
  SolveSummary summary = {};
  BestPoint best = {};                   // of the search, by the validation loss along it
  AlgorithmSettings settings = {};       // that were used
  double inner_rate = 0, largest_x = 0;  // of the problem
  bool kept_untuned = false;             // the search did not beat x = 0
  double searched_loss = 0;    // on the validation examples, of the better of the search's best and last x
  int64_t best_iteration = 0;  // of that one
};

struct TuneJobResult {
  std::string by = {};  // held-out or algorithm
  int64_t train_examples = 0, valid_examples = 0, test_examples = 0, nonzeros = 0;
  std::vector<std::string> class_names = {}, feature_names = {};
  std::vector<std::string> group_names = {};  // of each feature, where groups were asked for
  // What is returned: x, whose exponentials are the regularisers, one per feature, or features x classes; the
  // model, features x classes, by held-out rows with the intercept as a last row (of the squared loss one
  // column); and the positions in x, the most regularised first.
  Tensor x = {}, model = {};
  TableSchema schema = {};  // of the files; without features where predict has nothing to go by
  std::vector<int64_t> order = {};
  TuneScores scores = {}, baseline = {};      // the baseline: x = 0, or one regulariser for all features
  std::optional<TuneSearch> search = {};      // by an algorithm
  std::optional<TuneTableResult> table = {};  // by held-out rows
  int64_t folds = 0;                          // of that; 0: there were validation examples
  int64_t top = 0;                            // features to show
  double seconds = 0;
  std::vector<std::string> files = {};  // that were written into the folder
  std::string folder = {};              // empty: nothing is kept
  Json json = {};                       // all of it, as summary.json has it
  JobEnd end = {};
};

// One of the regularisers of a result.
struct TunePenalty {
  std::string feature, class_name;  // the class where it has one of its own
  int64_t column = 0;
  double x = 0, weight_norm = 0;
};
// All of them, the most regularised first.
std::vector<TunePenalty> ordered_penalties(const TuneJobResult& result);

// Fields that do not have their default values count as given. Throws OptionError for options that cannot be,
// RunError for a run that cannot be resumed.
TuneJobResult run_tune(TuneJobOptions options, RunContext& context);
// On examples in memory; options that name files or sets are refused.
TuneJobResult run_tune(TuneJobOptions options, const ExampleSets& data, RunContext& context);

// The problem that a stored run by an algorithm solves, made again from its files.
RunProblem tune_problem(const StoredRun& run);

}  // namespace bilevel
