#pragma once
// Euclidean projections of x onto simple sets, as functions: an outer optimiser applies them after its step.

#include <cstdint>
#include <functional>

#include "bilevel/core/tensor.h"

namespace bilevel {

// Gives the nearest point of a set; its argument is not written to. Two of them one after the other are not
// the projection onto what the sets have in common.
using Projection = std::function<Tensor(const Tensor& x)>;

Projection project_to_box(double low, double high);  // an infinite bound is no bound
Projection project_to_nonnegative();
// The Euclidean projection onto the probability simplex, of every row of `row_length` successive entries; 0 =
// of the whole vector as one row.
Projection project_to_simplex(int64_t row_length = 0);

}  // namespace bilevel
