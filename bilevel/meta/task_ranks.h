#pragma once
// Tasks that are dealt out to ranks. A task's inner problem is its own, so that the mean over the tasks of a
// meta-batch is the weighted sum of the means over the ranks' pieces of it.

#include <cstdint>

#include "bilevel/hypergradients/estimator.h"
#include "bilevel/meta/learner.h"
#include "bilevel/meta/tasks.h"

namespace bilevel {
class ProcessGroup;
}

namespace bilevel::meta {

// Learner::hypergradient of training tasks `first` to `first` + `count` - 1, of which each rank computes a
// piece: the same bits on all ranks. Calls are counted as of one process that solves all tasks together, the
// status is the worst, and bytes_kept the most that one rank keeps.
Hypergradient dealt_hypergradient(const Learner& learner, const TaskSource& source, const Tensor& x,
                                  int64_t first, int64_t count, int64_t iteration, ProcessGroup& group);

// Numbers of which each rank has some, and zeros in place of the others: all of them on every rank.
Tensor put_together(const Tensor& mine, const at::Device& device, ProcessGroup& group);

}  // namespace bilevel::meta
