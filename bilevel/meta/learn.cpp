#include "bilevel/meta/learn.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "bilevel/algorithms/resumable.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/finite.h"
#include "bilevel/core/require.h"
#include "bilevel/distributed/process_group.h"
#include "bilevel/meta/task_loss.h"
#include "bilevel/meta/task_ranks.h"

namespace bilevel::meta {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// Mean and half the width of the 95 % interval of the mean.
std::pair<double, double> mean_and_interval(const Tensor& values) {
  const int64_t count = values.numel();
  const double mean = values.mean().item<double>();
  if (count < 2) return {mean, not_a_number};
  const double deviation = values.std(/*unbiased=*/true).item<double>();
  return {mean, 1.96 * deviation / std::sqrt(static_cast<double>(count))};
}

// Records lie evenly along the iterations, whatever part of them this call runs.
bool is_record(int64_t iteration, const LearnOptions& options) {
  if (iteration == 0 || iteration == options.iterations) return true;
  if (options.records < 2) return false;
  const int64_t records = options.records;
  return iteration * records / options.iterations != (iteration - 1) * records / options.iterations;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void step(const Learner& learner, const TaskSource& source, const LearnOptions& options,
          const OuterOptimizer& outer, ProcessGroup* group, LearnState& state) {
  AlgorithmState& a = state.algorithm;
  const int64_t first = a.iteration * options.meta_batch;
  const auto begin = std::chrono::steady_clock::now();
  Hypergradient estimate;
  Tensor next;
  OuterState next_outer = a.outer;
  try {
    estimate =
        group != nullptr
            ? dealt_hypergradient(learner, source, a.x, first, options.meta_batch, a.iteration, *group)
            : learner.hypergradient(a.x, source.tasks(Part::train, first, options.meta_batch), a.iteration);
    next = outer.step(a.x, estimate.value, next_outer);
  } catch (const NotFiniteError& error) {
    throw NotFiniteError(fmt::format("iteration {}: {}", a.iteration + 1, error.what()));
  }
  if (!all_finite(next)) {
    throw NotFiniteError(fmt::format("iteration {}: x left the finite numbers; lower the outer rate {:g}",
                                     a.iteration + 1, options.outer.rate));
  }
  a.x = next;
  a.outer = std::move(next_outer);
  ++a.iteration;
  state.loss_sum += estimate.outer_loss.item<double>();
  ++state.loss_count;
  state.direction_norm = estimate.value.norm().item<double>();
  ++state.statuses[std::string(bilevel::name_of(estimate.status))];
  state.counts += estimate.counts;
  state.bytes_kept = std::max(state.bytes_kept, estimate.bytes_kept);
  state.seconds += seconds_since(begin);
}

// Why it is no use to go on, where most linear solves have failed; else empty. What is solved here is solved
// by conjugate gradients.
std::string why_learning_failed(const Learner& learner, const LearnState& state, bool at_end) {
  const SolveTally solves = tally_of(state.statuses, /*needs_positive=*/true);
  if (at_end ? !solves.most_failed() : !solves.ends_run()) return "";
  return fmt::format(
      "{}: {} of {} linear solves failed ({}), so what is learned does not follow the hypergradient: take {}",
      learner.options().name, solves.failed, solves.all, statuses_text(state.statuses),
      learner.options().name == "imaml" ? "--curvature gauss-newton or a larger --proximal"
                                        : "a larger --ridge or a smaller --outer-rate");
}

void keep_as_best(const TaskScore& valid, LearnState& state) {
  state.best_x = state.algorithm.x.clone();
  state.best_iteration = state.algorithm.iteration;
  state.best_valid = valid;
}

bool is_better(const TaskScore& a, const TaskScore& b, bool regression) {
  if (!regression && a.accuracy != b.accuracy) return a.accuracy > b.accuracy;
  return a.loss < b.loss;
}

void record(const Learner& learner, const TaskSource& source, const LearnOptions& options,
            ProcessGroup* group, LearnState& state) {
  LearnRecord r;
  r.iteration = state.algorithm.iteration;
  r.outer_loss = state.loss_count > 0 ? state.loss_sum / static_cast<double>(state.loss_count) : not_a_number;
  r.direction_norm = state.loss_count > 0 ? state.direction_norm : not_a_number;
  r.valid = score_tasks(learner, source, state.algorithm.x, Part::valid, options.valid_tasks,
                        options.tasks_at_once, r.iteration, {}, group);
  r.counts = state.counts;
  r.seconds = state.seconds;
  state.history.push_back(r);
  if (!state.best_x.defined() || is_better(r.valid, state.best_valid, source.regression())) {
    keep_as_best(r.valid, state);
  }
  state.loss_sum = 0;
  state.loss_count = 0;
}

}  // namespace

void LearnOptions::validate() const {
  require_at_least("iterations", iterations, 0);
  require_at_least("meta_batch", meta_batch, 1);
  require_at_least("records", records, 0);
  require_at_least("valid_tasks", valid_tasks, 1);
  require_at_least("test_tasks", test_tasks, 1);
  require_at_least("tasks_at_once", tasks_at_once, 1);
}

std::string_view name_of(LearnEnd end) {
  switch (end) {
    case LearnEnd::iterations_done:
      return "iterations_done";
    case LearnEnd::interrupted:
      return "interrupted";
    case LearnEnd::failed:
      return "failed";
    default:
      return "not_run";
  }
}

TaskScore score_tasks(const Learner& learner, const TaskSource& source, const Tensor& x, Part part,
                      int64_t count, int64_t at_once, int64_t iteration,
                      const std::function<void(int64_t)>& progress, ProcessGroup* group) {
  std::vector<Tensor> accuracies, losses;
  for (int64_t first = 0; first < count; first += at_once) {
    const int64_t here = std::min(at_once, count - first);
    if (group != nullptr && first / at_once % group->size() != group->rank()) {
      losses.push_back(at::zeros({here}, at::kDouble));
      accuracies.push_back(losses.back());
      continue;
    }
    const TaskBatch tasks = source.tasks(part, first, here);
    const Tensor outputs = learner.outputs(x, tasks, iteration);
    const Tensor targets = tasks.valid_targets.to(outputs.device());
    losses.push_back(task_losses(outputs, targets).to(at::kCPU, at::kDouble));
    if (!source.regression()) accuracies.push_back(task_accuracies(outputs, targets));
    if (progress) progress(first + tasks.tasks());
  }
  const auto all_of = [&](const std::vector<Tensor>& parts) {
    const Tensor mine = at::cat(parts);
    return group != nullptr ? put_together(mine, x.device(), *group) : mine;
  };
  TaskScore score;
  score.tasks = count;
  std::tie(score.loss, score.loss_interval) = mean_and_interval(all_of(losses));
  if (source.regression()) {
    score.accuracy = score.accuracy_interval = not_a_number;
  } else {
    std::tie(score.accuracy, score.accuracy_interval) = mean_and_interval(all_of(accuracies));
  }
  return score;
}

LearnState begin_learning(const Learner& learner, const LearnOptions& options) {
  options.validate();
  LearnState state;
  state.algorithm.x = learner.initial_outer(options.seed);
  state.algorithm.outer = make_outer_optimizer(options.outer).init(state.algorithm.x);
  return state;
}

LearnSummary learn(const Learner& learner, const TaskSource& source, const LearnOptions& options,
                   LearnState state, const LearnHooks& hooks, ProcessGroup* group) {
  options.validate();
  const OuterOptimizer outer = make_outer_optimizer(options.outer);
  Resumable<LearnHooks> loop(hooks);
  const auto look = [&] {
    record(learner, source, options, group, state);
    if (hooks.record) hooks.record(state.history.back());
    loop.save(state);
  };
  LearnSummary summary;
  // The start, and the look that a process was killed in: its last checkpoint is from just before it.
  if (state.history.empty() || (is_record(state.algorithm.iteration, options) &&
                                state.history.back().iteration != state.algorithm.iteration)) {
    look();
  }
  // A checkpoint of an earlier version, which kept the last x alone.
  if (!state.best_x.defined()) keep_as_best(state.history.back().valid, state);
  while (state.algorithm.iteration < options.iterations) {
    step(learner, source, options, outer, group, state);
    if (hooks.step) hooks.step(state);
    if (loop.save_due()) loop.save(state);
    summary.reason = why_learning_failed(learner, state, state.algorithm.iteration == options.iterations);
    if (!summary.reason.empty()) {
      summary.end = LearnEnd::failed;
      summary.state = std::move(state);
      return summary;
    }
    if (is_record(state.algorithm.iteration, options)) look();
    if (loop.interrupted()) {
      loop.save(state);
      summary.end = LearnEnd::interrupted;
      summary.state = std::move(state);
      return summary;
    }
  }
  summary.test = score_tasks(learner, source, state.best_x, Part::test, options.test_tasks,
                             options.tasks_at_once, state.best_iteration, hooks.test, group);
  summary.end = LearnEnd::iterations_done;
  summary.state = std::move(state);
  return summary;
}

}  // namespace bilevel::meta
