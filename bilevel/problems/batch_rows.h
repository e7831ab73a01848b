#pragma once
// The examples of a batch. Indices live on the CPU, the data where the user put it; an index that is empty,
// of the wrong type or out of range is said here, because on a GPU it would be an assertion far away.

#include "bilevel/core/batch.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

// The batch's rows (or elements) of `data`, differentiable; `data` itself for the full set.
Tensor batch_rows(const Tensor& data, const Batch& batch);

}  // namespace bilevel
