#pragma once
// What tasks are judged by, one number for each: cross entropy and accuracy where targets are classes,
// squares where they are numbers.

#include "bilevel/core/tensor.h"

namespace bilevel::meta {

bool are_classes(const Tensor& targets);  // int64

// outputs: tasks x examples x outputs. The mean over a task's examples of the cross entropy, or of the
// squared distance to the target: one number a task, twice differentiable.
Tensor task_losses(const Tensor& outputs, const Tensor& targets);

// The share of a task's examples whose largest output is the target's, in percent: double, CPU.
Tensor task_accuracies(const Tensor& outputs, const Tensor& targets);

}  // namespace bilevel::meta
