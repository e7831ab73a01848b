#pragma once
// A supernet's derivatives as CUDA graphs. A search step launches tens of thousands of small kernels, and
// from the host each launch takes longer than the kernel; a graph, captured once, launches all of them at a
// stroke. What is captured are the passes over the supernet's tape (tape/), which keep independent branches
// apart, or, where the space has none, what automatic differentiation of SupernetProblem computes.

#include <memory>

#include "bilevel/nas/supernet_problem.h"

namespace bilevel::nas {

bool can_capture();  // the library was built with CUDA

// Batches of `batch` images go through graphs; others, and other samplings than softmax, through `base`,
// which must outlive the result. Throws std::invalid_argument where can_capture() is false.
std::unique_ptr<SupernetEngine> capture_supernet(const SupernetProblem& base, int64_t batch);

}  // namespace bilevel::nas
