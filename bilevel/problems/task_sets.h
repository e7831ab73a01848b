#pragma once
// What a job on several tasks works on. Either every task has examples of its own, all with the same classes;
// or there is one problem of many classes, and each class's linear model is a task, as in K-RMD's section
// 4.2.2.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

// Unlike an ExampleSet every example belongs to a task, and features are dense and on any device.
struct TaskExamples {
  Tensor features;  // examples x features, dense
  Tensor labels;    // int64, 0 .. classes-1
  Tensor tasks;     // int64, 0 .. tasks-1, one per example; undefined where the classes are the tasks

  int64_t size() const { return labels.defined() ? labels.numel() : 0; }
  TaskExamples to(const at::TensorOptions& options) const;  // features converted, all moved
};

struct TaskSets {
  // An empty test set = there is none; an empty validation set = training examples are held out in turn.
  TaskExamples train, valid, test;
  int64_t tasks = 0;
  int64_t classes = 0;
  bool classes_are_tasks = false;
  std::vector<std::string> task_names;
  std::vector<std::string> class_names;  // empty = unnamed
  std::vector<int64_t> clusters;         // the true cluster of every task; empty = unknown

  // Throws std::invalid_argument naming the set and the task for fewer than two tasks, labels or tasks out of
  // range, and a task without training or validation examples; without any of the latter only where they are
  // not needed.
  void validate(bool needs_valid = true) const;
};

// All tasks as one: the examples together, one model for all of them. Only for tasks with examples of their
// own; one model for all classes would tell none of them apart.
TaskSets pooled(const TaskSets& sets);

// Tasks that fall into clusters. A cluster has one direction in feature space; a task's own is near it, and
// its two classes are the two sides of the plane across it. With few examples a task is better off with its
// cluster's examples too, and worse off with everybody's.
struct ClusteredTasksOptions {
  int64_t tasks = 12;
  int64_t clusters = 3;
  int64_t features = 20;
  int64_t train = 10;  // examples of every task
  int64_t valid = 20;
  int64_t test = 500;
  double spread = 0.1;  // norm of a task's deviation from its cluster's unit direction
  double noise = 0.1;   // standard deviation of what is added to the score before its sign becomes the label
  uint64_t seed = 0;

  void validate() const;  // throws std::invalid_argument naming the option, its value and the bound
};
// In double on the CPU. The tasks of a cluster stand together.
TaskSets draw_clustered_tasks(const ClusteredTasksOptions& options);

}  // namespace bilevel
