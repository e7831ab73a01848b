#pragma once
// What `learn` is measured by: tasks learned by logistic regression on their raw inputs, with nothing from
// other tasks but one penalty, the best of a few on the validation tasks.

#include <cstdint>

#include "bilevel/meta/learn.h"
#include "bilevel/meta/tasks.h"

namespace bilevel {

struct RawInputBaseline {
  double penalty = 0;    // on the sum of the losses, for inputs of mean square 1
  meta::TaskScore test;  // of no task: it was not measured
};
// Of tasks with classes, the same ones that the learner is judged by.
RawInputBaseline raw_input_baseline(const meta::TaskSource& source, int64_t valid_tasks, int64_t test_tasks);

}  // namespace bilevel
