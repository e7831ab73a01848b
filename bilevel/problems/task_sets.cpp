#include "bilevel/problems/task_sets.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

void check_range(const Tensor& values, int64_t bound, const char* what, const char* set) {
  const int64_t smallest = values.min().item<int64_t>(), largest = values.max().item<int64_t>();
  if (smallest < 0 || largest >= bound) {
    throw std::invalid_argument(fmt::format("{} examples: {} must be from 0 to {}, but reach from {} to {}",
                                            set, what, bound - 1, smallest, largest));
  }
}

// A task that nothing is learned from, or nothing is validated on, would take whatever the others say.
void check_present(const Tensor& tasks, const TaskSets& sets, const char* set) {
  const Tensor counts = at::bincount(tasks, {}, sets.tasks);
  for (int64_t task = 0; task < sets.tasks; ++task) {
    if (counts[task].item<int64_t>() > 0) continue;
    throw std::invalid_argument(
        fmt::format("task {} has no {} examples: give it at least one, or leave the task out",
                    sets.task_names[static_cast<size_t>(task)], set));
  }
}

void check_examples(const TaskExamples& examples, const TaskSets& sets, const char* set) {
  if (examples.features.dim() != 2 || examples.labels.dim() != 1 ||
      examples.features.size(0) != examples.size() || examples.features.size(1) < 1) {
    throw std::invalid_argument(
        fmt::format("{} examples: features must be a matrix with one row per label", set));
  }
  if (examples.features.size(1) != sets.train.features.size(1)) {
    throw std::invalid_argument(fmt::format("{} examples have {} features, the training examples {}", set,
                                            examples.features.size(1), sets.train.features.size(1)));
  }
  check_range(examples.labels, sets.classes, "labels", set);
  if (examples.tasks.defined() == sets.classes_are_tasks ||
      (examples.tasks.defined() && examples.tasks.sizes() != examples.labels.sizes())) {
    throw std::invalid_argument(fmt::format(
        "{} examples: {}", set,
        sets.classes_are_tasks ? "the classes are the tasks: no example has a task besides its label"
                               : "every example must have a task"));
  }
  if (examples.tasks.defined()) check_range(examples.tasks, sets.tasks, "tasks", set);
}

}  // namespace

TaskExamples TaskExamples::to(const at::TensorOptions& options) const {
  if (size() == 0) return *this;
  return {features.to(options), labels.to(options.device()),
          tasks.defined() ? tasks.to(options.device()) : tasks};
}

void TaskSets::validate(bool needs_valid) const {
  require_at_least("classes", classes, 2);
  if (tasks < 2) {
    throw std::invalid_argument(
        fmt::format("tasks = {}: there must be at least 2, or there is nothing that could interact", tasks));
  }
  if (classes_are_tasks && tasks != classes) {
    throw std::invalid_argument(fmt::format("{} tasks, but {} classes: they are the same", tasks, classes));
  }
  if (std::cmp_not_equal(task_names.size(), tasks)) {
    throw std::invalid_argument(fmt::format("{} names for {} tasks", task_names.size(), tasks));
  }
  const bool has_valid = valid.size() > 0;
  if (train.size() == 0 || (needs_valid && !has_valid)) {
    throw std::invalid_argument(
        fmt::format("there are no {} examples", train.size() == 0 ? "training" : "validation"));
  }
  check_examples(train, *this, "training");
  if (has_valid) check_examples(valid, *this, "validation");
  if (test.size() > 0) check_examples(test, *this, "test");
  check_present(classes_are_tasks ? train.labels : train.tasks, *this, "training");
  if (has_valid) check_present(classes_are_tasks ? valid.labels : valid.tasks, *this, "validation");
}

TaskSets pooled(const TaskSets& sets) {
  if (sets.classes_are_tasks) {
    throw std::invalid_argument("pooled: one model for all classes would tell none of them apart");
  }
  TaskSets result = sets;
  result.tasks = 1;
  result.task_names = {"all"};
  result.clusters.clear();
  for (TaskExamples* examples : {&result.train, &result.valid, &result.test}) {
    if (examples->size() > 0) examples->tasks = at::zeros_like(examples->tasks);
  }
  return result;
}

void ClusteredTasksOptions::validate() const {
  require_at_least("tasks", tasks, 2);
  require_at_least("clusters", clusters, 1);
  require_at_least("features", features, 1);
  require_at_least("train examples", train, 1);
  require_at_least("valid examples", valid, 1);
  require_at_least("test examples", test, 1);
  if (clusters > tasks) {
    throw std::invalid_argument(
        fmt::format("clusters = {}: must be at most the number of tasks, {}", clusters, tasks));
  }
  for (const auto& [option, value] : {std::pair{"spread", spread}, std::pair{"noise", noise}}) {
    require_nonnegative(option, value);
  }
}

TaskSets draw_clustered_tasks(const ClusteredTasksOptions& o) {
  o.validate();
  const auto cpu = at::TensorOptions().dtype(at::kDouble);
  const auto integers = cpu.dtype(at::kLong);
  TaskSets sets;
  sets.tasks = o.tasks;
  sets.classes = 2;
  const Tensor cluster = at::arange(o.tasks, integers).mul(o.clusters).floor_divide(o.tasks);
  for (int64_t task = 0; task < o.tasks; ++task) {
    sets.task_names.push_back(fmt::format("{}", task));
    sets.clusters.push_back(cluster[task].item<int64_t>());
  }
  Random direction_stream(named_seed(o.seed, "cluster directions"));
  const Tensor raw = direction_stream.normal({o.clusters, o.features}, cpu);
  const Tensor directions = raw / raw.norm(2, {1}, /*keepdim=*/true);
  Random spread_stream(named_seed(o.seed, "task directions"));
  const Tensor own =
      directions.index_select(0, cluster) + spread_stream.normal({o.tasks, o.features}, cpu) *
                                                (o.spread / std::sqrt(static_cast<double>(o.features)));
  const auto draw = [&](int64_t count, const char* name) -> TaskExamples {
    Random stream(named_seed(o.seed, name));
    const Tensor tasks = at::arange(o.tasks, integers).repeat_interleave(count);
    const Tensor features = stream.normal({o.tasks * count, o.features}, cpu);
    const Tensor noise = stream.normal({o.tasks * count}, cpu) * o.noise;
    const Tensor scores = (features * own.index_select(0, tasks)).sum(1) + noise;
    return {features, scores.gt(0).to(at::kLong), tasks};
  };
  sets.train = draw(o.train, "train");
  sets.valid = draw(o.valid, "valid");
  sets.test = draw(o.test, "test");
  sets.validate();
  return sets;
}

}  // namespace bilevel
