// `bilevel interact`: how strongly tasks should pull at each other, learned on validation examples.

#include "bilevel/jobs/interact.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/jobs/solve_run.h"
#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/solve_text.h"

namespace bilevel::cli {
namespace {

constexpr int64_t most_tasks_in_text = 24;  // wider matrices do not fit a terminal

std::string percent(double value) { return value < 0 ? "-" : fmt::format("{:.2f}", value); }

void print_accuracies(const InteractResult& r, bool by_rows) {
  fmt::print("{:<22}{:>14}{:>14}{:>14}{:>14}{:>12}\n", "accuracy in percent", "test",
             by_rows ? "held out" : "validation", "training", by_rows ? "held-out loss" : "valid. loss",
             "rho");
  for (const auto& [name, tasks] : {std::pair{"learned interaction", &r.learned},
                                    std::pair{"independent", r.independent ? &*r.independent : nullptr},
                                    std::pair{"one model for all", r.pooled ? &*r.pooled : nullptr}}) {
    if (tasks == nullptr || !std::isfinite(tasks->valid_loss)) continue;
    fmt::print("{:<22}{:>14}{:>14}{:>14}{:>14.4f}{:>12.3g}\n", name, percent(tasks->test_accuracy),
               percent(tasks->valid_accuracy), percent(tasks->train_accuracy), tasks->valid_loss,
               tasks->regularizer);
  }
}

void print_matrix(const std::vector<std::string>& names, const Tensor& interaction) {
  if (static_cast<int64_t>(names.size()) > most_tasks_in_text) return;
  fmt::print("\ninteraction\n{:>10}", "");
  for (const std::string& name : names) fmt::print("{:>8}", name.substr(0, 7));
  fmt::print("\n");
  for (size_t i = 0; i < names.size(); ++i) {
    fmt::print("{:>10}", names[i].substr(0, 9));
    for (size_t j = 0; j < names.size(); ++j) {
      const Tensor value = interaction[static_cast<int64_t>(i)][static_cast<int64_t>(j)];
      fmt::print("{:>8}", i == j ? "-" : fmt::format("{:.2g}", value.item<double>()));
    }
    fmt::print("\n");
  }
}

void print_held_out_search(const InteractJobResult& result) {
  const InteractTableResult& r = *result.table;
  fmt::print("{} fits with {} Newton steps and {} Hessian products in {:.1f} s\n", r.counts.fits,
             r.counts.gradients, r.counts.hessian_products, result.seconds);
  const std::string gain =
      fmt::format("{:+.4f} +- {:.4f} in the loss of rows that the search did not use", r.gain, r.gain_error);
  if (r.per_pair) {
    fmt::print("Each pair of tasks has its own strength, which gains {}.\n\n", gain);
    return;
  }
  fmt::print(
      "All pairs have the same strength: the mean of {} models, each weighted by how well it predicts "
      "held-out rows.\n",
      r.averaged);
  if (r.searched_pairs) {
    fmt::print("Giving each pair its own strength gains {}, which is less than two standard errors.\n", gain);
  }
  fmt::print("\n");
}

void print_answer(const InteractJobResult& result) {
  const TaskSets& sets = result.sets;
  const LearnedTasks& learned = result.interact.learned;
  fmt::print("{} tasks{} on {}; {} features, {} classes; {} training, {} and {} test examples\n", sets.tasks,
             sets.classes_are_tasks ? " (the classes)" : "", result.data, sets.train.features.size(1),
             sets.classes, sets.train.size(),
             result.folds > 0 ? fmt::format("held out in {} folds,", result.folds)
                              : fmt::format("{} validation", sets.valid.size()),
             sets.test.size());
  if (result.table) {
    print_held_out_search(result);
  } else {
    fmt::print("{}: {} iterations in {:.1f} s, the best at {}; inner rate {:.4g}\n\n",
               learned.summary.algorithm, learned.summary.state.iteration, learned.summary.seconds,
               learned.best_iteration, learned.inner_rate);
  }
  print_accuracies(result.interact, result.table.has_value());
  print_matrix(sets.task_names, learned.interaction);
  fmt::print("\nsuggested clusters:");
  for (const auto& cluster : named_clusters(result.suggested, sets.task_names)) {
    fmt::print(" {{{}}}", fmt::join(cluster, " "));
  }
  fmt::print("\n");
  if (result.means) {
    const auto mean = [](double of) { return std::isfinite(of) ? fmt::format("{:.3g}", of) : "-"; };
    fmt::print(
        "mean interaction within the true clusters {}, across them {}; the suggested ones agree on {:.1f} % "
        "of the pairs\n",
        mean(result.means->within), mean(result.means->across), result.rand_index);
  }
}

void print_interact(const InteractJobResult& result) {
  const SolveSummary& summary = result.interact.learned.summary;
  if (result.table) {
    print_answer(result);
    return;
  }
  if (summary.reason == StopReason::not_run) return;  // interrupted before there was an answer
  if (has_answer(summary)) print_answer(result);
  print_linear_solves(summary);
  print_failures(summary);
}

}  // namespace

void add_interact_command(CLI::App& app, int& exit_code) {
  add_job<InteractJobOptions>(
      app, exit_code,
      {"interact", "Learn how strongly tasks (or classes) should influence each other",
       "Every task has a linear model. A matrix C determines how strongly two models are drawn together; it\n"
       "is learned so that the models do well on examples that they were not fitted to. The result is\n"
       "compared with tasks trained on their own and with one model for all. Without --train-tasks or\n"
       "--task-column the classes are the tasks. Your own tasks are learned by held-out rows; made-up tasks\n"
       "and classes, or tasks with an algorithm's option, by K-RMD with T = 100 and K = T, Adam at 0.05 and\n"
       "at most 150 iterations.\n"
       "Examples:\n"
       "  bilevel interact --data synthetic --clusters 3 --tasks 12 --json\n"
       "  bilevel interact --train shops.csv --task-column shop --label-column bought --out run1\n"
       "  bilevel interact --train x.npy --train-labels y.npy --test xt.npy --test-labels yt.npy"},
      [](const InteractJobOptions& options, RunContext& context) { return run_interact(options, context); },
      print_interact);
}

}  // namespace bilevel::cli
