#include "bilevel/interact/interact.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

namespace bilevel {

void InteractOptions::validate() const {
  if (patience < 0) {
    throw std::invalid_argument(
        fmt::format("patience = {}: must be at least 1, or 0 for a search that never ends early", patience));
  }
  problem.validate();
  solve.validate();
  find_algorithm(algorithm);
}

InteractOptions default_interact_options() {
  InteractOptions options;
  options.settings.inner.steps = 100;
  options.settings.inner.rate = 0;
  options.settings.outer.optimizer = "adam";
  options.settings.outer.rate = 0.05;
  // Enough for a pull to grow or shrink a thousandfold. Much longer fits the validation examples: C thins out
  // to the few pairs that happen to serve them best.
  options.solve.iterations = 150;
  options.patience = 50;
  return options;
}

LearnedTasks learn_tasks(const TaskInteraction& problem, const InteractOptions& options,
                         const SolveHooks& hooks, const Solver& solver) {
  options.validate();
  AlgorithmSettings settings = options.settings;
  if (settings.inner.rate == 0) settings.inner.rate = problem.rate();
  SolveOptions solve_options = options.solve;
  solve_options.settings = settings;
  solve_options.records = std::max<int64_t>(solve_options.iterations, 1);
  BestPoint best;
  const SolveHooks with_best = follow(best, hooks, options.patience);
  LearnedTasks result;
  const auto algorithm = make_algorithm(options.algorithm, settings);
  result.summary = solver ? solver(problem, *algorithm, solve_options, with_best, best)
                          : solve(problem, *algorithm, solve_options, with_best);
  if (ended_badly(result.summary.reason)) return result;
  result.x = best.x;
  result.w = best.w;
  result.best_iteration = best.iteration;
  result.valid_loss = best.loss;
  result.interaction = problem.interaction(best.x);
  result.regularizer = problem.regularizer(best.x).item<double>();
  const TaskSets& sets = problem.sets();
  result.train_accuracy = problem.accuracy(best.w, sets.train);
  result.valid_accuracy = problem.accuracy(best.w, sets.valid);
  if (sets.test.size() > 0) {
    result.test_accuracy = problem.accuracy(best.w, sets.test);
    result.test_loss = problem.loss(best.w, sets.test);
  }
  result.inner_rate = settings.inner.rate;
  return result;
}

const LearnedTasks& InteractResult::returned() const {
  return best == Best::learned ? learned : best == Best::independent ? *independent : *pooled;
}

std::string_view name_of(InteractResult::Best best) {
  return best == InteractResult::Best::learned       ? "learned interaction"
         : best == InteractResult::Best::independent ? "independent"
                                                     : "one model for all";
}

// All three losses are means over the same examples.
void choose_best(InteractResult& result, const std::string& instead) {
  using Best = InteractResult::Best;
  const auto consider = [&](const std::optional<LearnedTasks>& baseline, Best which) {
    if (baseline && !(result.returned().valid_loss <= baseline->valid_loss)) result.best = which;
  };
  consider(result.independent, Best::independent);
  consider(result.pooled, Best::pooled);
  if (result.best == Best::learned) return;
  result.warnings.push_back(fmt::format(
      "the learned interaction does not beat '{}' on the validation examples: a loss of {:.4f} against "
      "{:.4f}. The models of '{}' are returned{}",
      name_of(result.best), result.learned.valid_loss, result.returned().valid_loss, name_of(result.best),
      instead));
}

InteractResult interact(const TaskSets& sets, const InteractOptions& options,
                        const at::TensorOptions& tensors, const SolveHooks& hooks,
                        const std::function<void(const std::string&)>& progress, const Solver& solver) {
  const auto say = [&](const char* what) {
    if (progress) progress(what);
  };
  say("the interaction of the tasks");
  InteractResult result;
  SolveSummary& summary = result.learned.summary;
  result.learned = learn_tasks({sets, options.problem, tensors}, options, hooks, solver);
  if (summary.reason == StopReason::interrupted || ended_badly(summary.reason)) return result;
  TaskInteractionOptions alone = options.problem;
  alone.coupling = Coupling::none;
  SolveHooks along;
  along.interrupted = hooks.interrupted;
  const auto baseline = [&](const char* what, const TaskSets& of) -> std::optional<LearnedTasks> {
    if (summary.reason == StopReason::interrupted) return std::nullopt;
    say(what);
    LearnedTasks learned = learn_tasks({of, alone, tensors}, options, along);
    if (learned.summary.reason == StopReason::interrupted) {
      summary.reason = StopReason::interrupted;
      return std::nullopt;
    }
    if (ended_badly(learned.summary.reason)) {
      result.warnings.push_back(
          fmt::format("there is nothing to compare with for '{}': {}", what, learned.summary.message));
      return std::nullopt;
    }
    return learned;
  };
  result.independent = baseline("every task on its own", sets);
  if (!sets.classes_are_tasks) result.pooled = baseline("one model for all tasks", pooled(sets));
  choose_best(result, "; take more --iterations or another --outer-rate");
  return result;
}

// ---- what a matrix of interactions says ----

ClusterMeans cluster_means(const Tensor& interaction, const std::vector<int64_t>& clusters) {
  const Tensor cluster = at::tensor(clusters, at::TensorOptions().dtype(at::kLong));
  const Tensor same = cluster.unsqueeze(0).eq(cluster.unsqueeze(1));
  const Tensor pairs = at::eye(cluster.numel(), at::TensorOptions().dtype(at::kBool)).logical_not();
  const auto mean = [&](const Tensor& chosen) {
    const Tensor values = interaction.cpu().to(at::kDouble).masked_select(chosen);
    return values.numel() == 0 ? std::numeric_limits<double>::quiet_NaN() : values.mean().item<double>();
  };
  return {.within = mean(same.logical_and(pairs)), .across = mean(same.logical_not())};
}

std::vector<int64_t> suggest_clusters(const Tensor& interaction) {
  constexpr double floor = 1e-4, least_fall = 2;
  const Tensor matrix = interaction.cpu().to(at::kDouble).contiguous();
  const int64_t tasks = matrix.size(0);
  const double* c = matrix.data_ptr<double>();
  std::vector<std::vector<int64_t>> groups;
  for (int64_t task = 0; task < tasks; ++task) groups.push_back({task});
  const auto pull = [&](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    double strongest = 0;
    for (const int64_t i : a) {
      for (const int64_t j : b) strongest = std::max(strongest, c[i * tasks + j]);
    }
    return strongest;
  };
  std::vector<std::vector<std::vector<int64_t>>> stages{groups};  // before each merge, and at the end
  std::vector<double> strengths;
  while (groups.size() > 1) {
    size_t left = 0, right = 1;
    double strongest = -1;
    for (size_t i = 0; i < groups.size(); ++i) {
      for (size_t j = i + 1; j < groups.size(); ++j) {
        if (const double strength = pull(groups[i], groups[j]); strength > strongest) {
          strongest = strength;
          left = i;
          right = j;
        }
      }
    }
    groups[left].insert(groups[left].end(), groups[right].begin(), groups[right].end());
    groups.erase(groups.begin() + static_cast<int64_t>(right));
    strengths.push_back(strongest);
    stages.push_back(groups);
  }
  // Without any pull every task is on its own.
  size_t chosen = strengths.empty() || strengths[0] == 0 ? 0 : stages.size() - 1;
  double largest_fall = least_fall;
  for (size_t k = 1; k < strengths.size(); ++k) {
    const double least = floor * strengths[0];
    const double fall = std::max(strengths[k - 1], least) / std::max(strengths[k], least);
    if (fall > largest_fall) {
      largest_fall = fall;
      chosen = k;
    }
  }
  std::vector<int64_t> result(static_cast<size_t>(tasks), -1);
  std::map<size_t, int64_t> number;  // groups by the first task that is in them
  for (int64_t task = 0; task < tasks; ++task) {
    for (size_t g = 0; g < stages[chosen].size(); ++g) {
      if (std::find(stages[chosen][g].begin(), stages[chosen][g].end(), task) == stages[chosen][g].end())
        continue;
      const auto next = static_cast<int64_t>(number.size());
      result[static_cast<size_t>(task)] = number.emplace(g, next).first->second;
    }
  }
  return result;
}

double rand_index(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  int64_t agree = 0, pairs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = i + 1; j < a.size(); ++j) {
      ++pairs;
      agree += (a[i] == a[j]) == (b[i] == b[j]) ? 1 : 0;
    }
  }
  return pairs == 0 ? 100.0 : 100.0 * static_cast<double>(agree) / static_cast<double>(pairs);
}

}  // namespace bilevel
