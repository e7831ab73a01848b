#include "bilevel/problems/task_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/labels.h"
#include "bilevel/data/splits.h"

namespace bilevel {
namespace {

TaskExamples rows_of(const TaskExamples& examples, const Tensor& index) {
  return {examples.features.index_select(0, index), examples.labels.index_select(0, index),
          examples.tasks.defined() ? examples.tasks.index_select(0, index) : examples.tasks};
}

// Positions in `names` where tasks have names.
Tensor tasks_of(const TaskFile& file, const LabelledFeatures& read, std::vector<std::string>& names) {
  if (file.tasks.empty()) {
    names = read.group_names;
    return read.groups;
  }
  Tensor tasks = read_labels(file.tasks, false, &names);
  if (read.rows.defined() && tasks.numel() > read.rows[-1].item<int64_t>()) {
    tasks = tasks.index_select(0, read.rows);
  }
  if (tasks.numel() != read.features.rows()) {
    line_error(file.tasks, 0,
               fmt::format("{} tasks, one per example of {}", read.features.rows(), file.examples.features),
               fmt::format("{}", tasks.numel()), "give the tasks of the same examples");
  }
  return tasks;
}

}  // namespace

// Every task gives its part, with its classes in their proportions: a task must have examples on both sides.
void split_off_validation(TaskSets& sets, double valid_part, uint64_t seed, const std::string& file) {
  const TaskExamples all = sets.train;
  const Tensor task_of = sets.classes_are_tasks ? all.labels : all.tasks;
  std::vector<Tensor> train, valid;
  for (int64_t task = 0; task < sets.tasks; ++task) {
    const Tensor mine = task_of.eq(task).nonzero().view({-1});
    const int64_t count = mine.numel();
    if (count < 2) {
      line_error(file, 0,
                 fmt::format("two examples of task {} or more, one for training and one for validation",
                             sets.task_names[static_cast<size_t>(task)]),
                 fmt::format("{}", count),
                 "give it more, leave it out, or give a file of validation examples");
    }
    const int64_t held =
        std::clamp<int64_t>(std::llround(valid_part * static_cast<double>(count)), 1, count - 1);
    const Splits parts =
        make_splits(all.labels.index_select(0, mine), sets.classes, {.train = count - held, .valid = held},
                    Balance::proportional, mix_seeds(seed, static_cast<uint64_t>(task)));
    train.push_back(mine.index_select(0, parts.train));
    valid.push_back(mine.index_select(0, parts.valid));
  }
  sets.train = rows_of(all, std::get<0>(at::cat(train).sort()));
  sets.valid = rows_of(all, std::get<0>(at::cat(valid).sort()));
}

void TaskFileOptions::validate() const {
  require_between_0_and_1("valid_part", valid_part);
  if (train.examples.features.empty()) {
    throw std::invalid_argument("a file of training examples is missing");
  }
  for (const auto& [file, set] : {std::pair{&valid, "validation"}, std::pair{&test, "test"}}) {
    if (file->examples.features.empty() && (!file->examples.labels.empty() || !file->tasks.empty())) {
      throw std::invalid_argument(
          fmt::format("labels or tasks of a {} set without its features: give the features too", set));
    }
    if (!file->examples.features.empty() && file->tasks.empty() != train.tasks.empty()) {
      throw std::invalid_argument(fmt::format(
          "tasks of the {} set are {}, those of the training set are {}: "
          "give a file of tasks for every set, or for none",
          set, file->tasks.empty() ? "missing" : "given", train.tasks.empty() ? "missing" : "given"));
    }
  }
  if (!train.tasks.empty() && !reading.group_column.empty()) {
    throw std::invalid_argument("a column of tasks and a file of tasks: give one of the two");
  }
}

TaskTables read_task_tables(const TaskFileOptions& options) {
  options.validate();
  std::vector<const TaskFile*> files{&options.train};
  for (const TaskFile* file : {&options.valid, &options.test}) {
    if (!file->examples.features.empty()) files.push_back(file);
  }
  std::vector<LabelledFile> names;
  for (const TaskFile* file : files) names.push_back(file->examples);
  std::vector<LabelledFeatures> read = read_labelled_files(names, options.reading);

  TaskTables tables;
  TaskSets& sets = tables.sets;
  const std::vector<int64_t> classes = distinct_labels(read[0].labels, read[0].labels_from);
  sets.classes = static_cast<int64_t>(classes.size());
  sets.classes_are_tasks = options.train.tasks.empty() && options.reading.group_column.empty();
  const std::string tasks_from = options.train.tasks.empty() ? names[0].features : options.train.tasks;
  std::vector<int64_t> tasks = classes;
  std::vector<std::string> task_names = read[0].label_names;
  if (!sets.classes_are_tasks) {
    task_names.clear();
    const Tensor given = tasks_of(options.train, read[0], task_names);
    if (given.min().item<int64_t>() == given.max().item<int64_t>()) {
      line_error(tasks_from, 0, "at least two tasks",
                 fmt::format("only task {} in {} examples",
                             task_names.empty() ? fmt::format("{}", given[0].item<int64_t>()) : task_names[0],
                             given.numel()),
                 "choose another column or file, or none for the classes as tasks");
    }
    tasks = distinct_labels(given, tasks_from);
  }
  sets.tasks = static_cast<int64_t>(tasks.size());
  const auto named = [](const std::vector<int64_t>& values, const std::vector<std::string>& from) {
    std::vector<std::string> result;
    for (const int64_t value : values) {
      result.push_back(from.empty() ? fmt::format("{}", value) : from[static_cast<size_t>(value)]);
    }
    return result;
  };
  sets.task_names = named(tasks, task_names);
  sets.class_names = named(classes, read[0].label_names);
  tables.schema = read[0].schema;

  std::vector<TaskExamples> examples;
  for (size_t i = 0; i < files.size(); ++i) {
    const Features features = options.bias ? append_ones(read[i].features) : read[i].features;
    TaskExamples& set = examples.emplace_back();
    set.features = features.is_sparse() ? to_dense(features.sparse) : features.dense;
    set.labels = number_labels(read[i].labels, classes, read[i].labels_from);
    if (!sets.classes_are_tasks) {
      set.tasks = number_labels(tasks_of(*files[i], read[i], task_names), tasks,
                                files[i]->tasks.empty() ? names[i].features : files[i]->tasks);
    }
  }
  sets.train = examples[0];
  if (!options.valid.examples.features.empty()) {
    sets.valid = examples[1];
  } else if (options.splits) {
    split_off_validation(sets, options.valid_part, options.seed, names[0].features);
  }
  if (!options.test.examples.features.empty()) sets.test = examples.back();
  try {
    sets.validate(options.splits);
  } catch (const std::invalid_argument& error) {  // what is wrong now is wrong in the files
    throw std::runtime_error(fmt::format("{}: {}",
                                         options.valid.examples.features.empty()
                                             ? names[0].features
                                             : names[0].features + ", " + names[1].features,
                                         error.what()));
  }
  return tables;
}

}  // namespace bilevel
