#pragma once
// Tasks from a user's files: features and labels in any format of data/feature_files.h, and what task an
// example belongs to from a column of a table or from a file of its own. Without either the classes are the
// tasks.

#include <cstdint>
#include <string>

#include "bilevel/data/feature_files.h"
#include "bilevel/problems/task_sets.h"

namespace bilevel {

struct TaskFile {
  LabelledFile examples;  // empty features = there is none
  std::string tasks;      // one whole number or name per example; empty = the group column, or the classes
};

struct TaskFileOptions {
  TaskFile train, valid, test;
  FeatureFileOptions reading;
  bool splits = true;       // false: all training examples stay where there is no validation file
  double valid_part = 0.5;  // of every task's training examples, where there is no validation file; in (0, 1)
  uint64_t seed = 0;        // of that split
  bool bias = false;        // append a column of ones
  void validate() const;    // throws std::invalid_argument naming what is missing or too much
};
// Throws std::runtime_error naming the file, what was expected and what was found: also for fewer than two
// tasks and for a task without training or validation examples.
struct TaskTables {
  TaskSets sets;
  TableSchema schema;  // of the files; group_names are the tasks' where they have names
};
TaskTables read_task_tables(const TaskFileOptions& options);
// The validation set that there is no file for: a part of the training examples of `sets`, which came from
// `file`.
void split_off_validation(TaskSets& sets, double valid_part, uint64_t seed, const std::string& file);
inline TaskSets read_task_sets(const TaskFileOptions& options) { return read_task_tables(options).sets; }

}  // namespace bilevel
