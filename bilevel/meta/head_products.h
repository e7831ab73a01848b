#pragma once
// The three matrix products of many small heads at once. LibTorch's batched product goes through its
// dispatcher once for each task on the CPU, which takes longer than the product; here it is one call for all
// tasks. On other devices it is LibTorch's.

#include "bilevel/core/tensor.h"

namespace bilevel::meta {

// tasks x examples x features, tasks x outputs x features, tasks x outputs -> F W' + b for each task. Without
// a graph.
Tensor head_outputs(const Tensor& features, const Tensor& matrix, const Tensor& bias);
// S'F and the sums of S over the examples, as a head's block has them: tasks x (outputs * features +
// outputs).
Tensor head_pullback(const Tensor& slopes, const Tensor& features);
// S W: tasks x examples x features.
Tensor feature_pullback(const Tensor& slopes, const Tensor& matrix);

}  // namespace bilevel::meta
