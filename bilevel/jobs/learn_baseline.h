#pragma once
// What `learn` is measured by: tasks learned by logistic regression on their raw inputs, with nothing from
// other tasks but one penalty, the best of a few on the validation tasks.

#include <cstdint>

#include "bilevel/meta/learn.h"
#include "bilevel/meta/tasks.h"

namespace bilevel {

struct RawInputBaseline {
  double penalty = 0;           // on the sum of the losses, for inputs of mean square 1
  meta::TaskScore valid, test;  // of no task: it was not measured
};
// Outputs for a task's other examples, by a regression on its training examples: rows of numbers both.
Tensor raw_input_outputs(const Tensor& train, const Tensor& labels, const Tensor& others, int64_t ways,
                         double penalty);

// Of tasks with classes, the same ones that the learner is judged by.
RawInputBaseline raw_input_baseline(const meta::TaskSource& source, int64_t valid_tasks, int64_t test_tasks);

}  // namespace bilevel
