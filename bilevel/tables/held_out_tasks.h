#pragma once
// The loss of rows that were held out, of tasks whose models pull at each other, as a function of the pulls:
// what interact minimises on a table.

#include <cstdint>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/coupled_fit.h"

namespace bilevel {

// Unlike an ExampleSet scaled, with training and validation rows together: each has a task, and a fold that
// holds it out; below 0 = none does.
struct TaskRows {
  Tensor scaled;  // rows x columns, the last column ones
  Tensor labels;  // int64, 0 .. classes-1
  Tensor task;    // int64, 0 .. tasks-1
  Tensor fold;    // int64
  int64_t tasks = 0, classes = 0, folds = 0;

  int64_t size() const { return labels.numel(); }
  TaskRows subset(const Tensor& index) const;
  TaskRows fitted() const;  // those that some fit may see
};

class HeldOutTasks {
 public:
  explicit HeldOutTasks(const TaskRows& rows);

  // The mean cross entropy of the rows that some fold holds out. Throws std::runtime_error where it is not
  // finite.
  double operator()(const Pulls& pulls);
  PullDerivative derivative();  // where it was evaluated last
  // Of the held-out rows, always in the same order.
  Tensor scores() const;  // rows x classes
  Tensor losses() const;
  const Tensor& targets() const { return targets_; }                    // rows x classes, one-hot
  double count() const { return static_cast<double>(index_.numel()); }  // of held-out rows
  int64_t tasks() const { return rows_.tasks; }

  // tasks x columns x classes, of all rows that some fit may see.
  Tensor refit(const Pulls& pulls, FitCounts& counts) const;
  const FitCounts& counts() const { return fit_.counts(); }

 private:
  TaskRows rows_;
  Tensor index_, fold_;  // of the held-out rows: where they are, and which fold holds each out
  Tensor targets_;
  CoupledFit fit_;
};

// Cross entropies of rows under the models of their tasks, tasks x columns x classes.
Tensor task_losses(const TaskRows& rows, const Tensor& models);
// One for each row of scores, rows x classes.
Tensor cross_entropy_of(const Tensor& scores, const Tensor& targets);

}  // namespace bilevel
