#pragma once
// A comparison whose algorithms were dealt out to the ranks of a group, put together again.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "bilevel/check/compare.h"

namespace bilevel {

class ProcessGroup;

// One after the other; without a group all of them are this process's.
bool is_dealt_here(size_t algorithm, const ProcessGroup* group);

// Fills in what the other ranks found. `tensors` are the options of x; the points of the runs, their bounds
// and the states of the optimisers stay where they were made. Returns why the value function could not be
// measured, for the first algorithm where that was so: `why` is this rank's, at its algorithm `at`.
std::string exchange_compared(ProcessGroup& group, const at::TensorOptions& tensors,
                              std::vector<ComparedAlgorithm>& algorithms, const std::string& why, size_t at);

}  // namespace bilevel
