#pragma once
// Batch norm by the batch's own statistics on the CPU, with first and second derivatives in closed form: one
// pass for the sums of a channel and one for the result, while the channel is in the cache. LibTorch composes
// its second derivative of some thirty elementwise operations, each of which goes through memory.

#include "bilevel/core/tensor.h"

namespace bilevel::nas {

// scale (x - mean) / sqrt(variance + epsilon) + shift per channel; scale or shift undefined = 1, 0.
// Differentiable twice: a third derivative throws.
Tensor normalize_batch(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon);

// Float and double on the CPU; at::batch_norm serves the others.
bool can_normalize_batch(const Tensor& x);

}  // namespace bilevel::nas
