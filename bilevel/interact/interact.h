#pragma once
// Learning how tasks should influence each other as a job: any bilevel algorithm learns C and rho on the
// validation examples, and the models that they give are compared with tasks that are trained on their own
// and with one model for all tasks, whose rho the same search finds.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/algorithms/best_point.h"
#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/core/tensor.h"
#include "bilevel/problems/task_interaction.h"

namespace bilevel {

struct InteractOptions {
  std::string algorithm = "reverse";
  AlgorithmSettings settings = {};
  SolveOptions solve = {};
  // Iterations without a smaller validation loss before the search ends: K-RMD's, which looked at the test
  // error for it. 0 = never.
  int64_t patience = 500;
  TaskInteractionOptions problem = {};
  void validate() const;
};
// K-RMD's T = 100 and Adam; the paper has no rate for Adam.
InteractOptions default_interact_options();

struct LearnedTasks {
  Tensor x, w;
  Tensor interaction;      // C, tasks x tasks; zeros without coupling
  double regularizer = 0;  // rho
  int64_t best_iteration = 0;
  double train_accuracy = 0, valid_accuracy = 0;  // percent, like test_accuracy
  double valid_loss = 0;
  double test_accuracy = -1, test_loss = -1;  // negative = there is no test set
  double inner_rate = 0;
  SolveSummary summary;
};

// Searches x of one problem. `settings.inner.rate` of 0 takes the problem's. The hooks' own record goes
// first; a record of every iteration is taken, whatever solve.records says. A search that ended badly has its
// summary and nothing else.
LearnedTasks learn_tasks(const TaskInteraction& problem, const InteractOptions& options,
                         const SolveHooks& hooks = {}, const Solver& solver = {});

struct InteractResult {
  LearnedTasks learned;  // its summary's reason is `interrupted`, too, where a baseline was
  std::optional<LearnedTasks> independent;  // none where the search was interrupted or ended badly
  std::optional<LearnedTasks> pooled;       // where the tasks have examples of their own
  std::vector<std::string> warnings;        // a baseline that is missing, or that the search did not beat
  // Of the smallest validation loss: what a job hands on.
  enum class Best { learned, independent, pooled };
  Best best = Best::learned;
  const LearnedTasks& returned() const;
};
std::string_view name_of(InteractResult::Best best);
// Sets `best`, and warns where it is a baseline; `instead` ends the warning.
void choose_best(InteractResult& result, const std::string& instead = "");
// `progress` is called with what is being done; hooks and solver are those of the first search, which is the
// long one, but `interrupted` is asked in all.
InteractResult interact(const TaskSets& sets, const InteractOptions& options,
                        const at::TensorOptions& tensors, const SolveHooks& hooks = {},
                        const std::function<void(const std::string&)>& progress = {},
                        const Solver& solver = {});

// ---- what a matrix of interactions says ----

// Means of C over the pairs of different tasks of one cluster, and of different clusters.
struct ClusterMeans {
  double within = 0, across = 0;
};
ClusterMeans cluster_means(const Tensor& interaction, const std::vector<int64_t>& clusters);

// Single linkage on C, because a chain of pulls holds its ends together too, cut where the strength of a
// merge falls by the largest factor; pulls below 1e-4 of the strongest count as that. Where it never falls by
// half at once all tasks are one cluster; where there is no pull at all each is one. One number per task,
// from 0 in the order of the tasks.
std::vector<int64_t> suggest_clusters(const Tensor& interaction);
// Pairs of tasks that two ways of clustering agree on, percent (Rand 1971).
double rand_index(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

}  // namespace bilevel
