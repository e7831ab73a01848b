#pragma once
// The job `interact`: how strongly tasks should influence each other, learned on examples that the models
// were not fitted to, and compared with tasks on their own and with one model for all.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bilevel/fields/fields.h"
#include "bilevel/interact/interact.h"
#include "bilevel/jobs/algorithm_choice.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/table_choice.h"
#include "bilevel/problems/task_files.h"
#include "bilevel/problems/task_sets.h"
#include "bilevel/run/json.h"
#include "bilevel/run/run_context.h"
#include "bilevel/tables/interact_table.h"

namespace bilevel {

// By the loss of rows that were held out, for tables (tables/interact_table.h), or by an algorithm on
// problems/task_interaction.h (interact/interact.h).
const TableWays& interact_ways();

struct InteractJobOptions {
  InteractJobOptions();
  TaskFileOptions files = {};
  std::string data = "synthetic";        // where there are no files
  ClusteredTasksOptions synthetic = {};  // of that
  TableChoice table = {};
  int64_t patience = 0;
  TaskInteractionOptions problem = {};
  AlgorithmChoice algorithm = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<InteractJobOptions>& fields();
};

struct InteractJobResult {
  std::string by = {};    // held-out or algorithm
  std::string data = {};  // synthetic, or the training file; empty: it was in memory
  TaskSets sets = {};
  TableSchema schema = {};  // of the files
  bool has_bias = false;    // the last feature is a column of ones that was appended
  InteractResult interact =
      {};  // by held-out rows without summaries, and with an intercept behind the features
  std::optional<InteractTableResult> table = {};  // by held-out rows
  int64_t folds = 0;                              // of that; 0: there were validation examples
  double seconds = 0;
  std::vector<int64_t> suggested = {};     // the cluster of every task, as the interactions suggest it
  std::optional<ClusterMeans> means = {};  // of the true clusters, where they are known
  double rand_index = 0;                   // how well the two agree
  std::string folder = {};                 // empty: nothing is kept
  Json json = {};                          // all of it, as summary.json has it
  JobEnd end = {};
};

// Fields that do not have their default values count as given. Throws OptionError for options that cannot be,
// RunError for a run that cannot be resumed.
InteractJobResult run_interact(InteractJobOptions options, RunContext& context);
// On tasks in memory; options that name files or made-up tasks are refused.
InteractJobResult run_interact(InteractJobOptions options, const TaskSets& tasks, RunContext& context);

// The tasks of each cluster by their names.
std::vector<std::vector<std::string>> named_clusters(const std::vector<int64_t>& cluster,
                                                     const std::vector<std::string>& names);

}  // namespace bilevel
