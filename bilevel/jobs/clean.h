#pragma once
// The job `clean`: finds bad labels in a training set, with the help of a clean validation set or of a model
// of how labels go wrong. For your own model or problem, see bilevel/clean/clean.h.

#include <optional>
#include <string>
#include <vector>

#include "bilevel/clean/clean.h"
#include "bilevel/jobs/clean_options.h"
#include "bilevel/jobs/example_sets.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/run_problem.h"
#include "bilevel/problems/cleaning_sets.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"
#include "bilevel/tables/clean_table.h"
#include "bilevel/tables/table_scores.h"

namespace bilevel {

struct CleanJobResult {
  std::string by = {};     // how it was cleaned: noise-model or weights
  std::string data = {};   // the training file or the named set; empty: it was in memory
  std::string model = {};  // linear or cnn
  CleaningSets sets = {};
  // By either way: every example's weight, the suspects, and the labels that they should have. The weight by
  // the noise model is the probability that the label is right.
  CleanResult clean = {};
  CleanOptions options = {};                            // by weights: what was used
  std::optional<CleanTableResult> table = {};           // by the noise model: all that it found
  int64_t folds = 0;                                    // of that
  std::optional<TableScores> test = {}, baseline = {};  // of its models, where there is a test set
  double seconds = 0;
  std::vector<std::string> files = {};  // that were written into the folder
  std::string folder = {};              // empty: nothing is kept
  Json json = {};                       // all of it, as summary.json has it
  JobEnd end = {};
};

// Fields that do not have their default values count as given. Throws OptionError for options that cannot be,
// RunError for a run that cannot be resumed.
CleanJobResult run_clean(CleanJobOptions options, RunContext& context);
// On examples in memory; options that name files or sets are refused.
CleanJobResult run_clean(CleanJobOptions options, const ExampleSets& data, RunContext& context);

// The problem that a stored run by weights solves, made again from its files.
RunProblem clean_problem(const StoredRun& run);

}  // namespace bilevel
