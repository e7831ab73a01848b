#pragma once
// The 3 x 3 average pool of the search spaces (stride 1, padding 1, padding not counted) on the CPU: a box
// sum of rows, then of columns, then a division by the count. It is linear and the box sum its own transpose,
// so that derivatives of any order are the same code. LibTorch's own loops take ten times as long.

#include "bilevel/core/tensor.h"

namespace bilevel::nas {

Tensor box_pool(const Tensor& x);
// Float and double on the CPU; at::avg_pool2d serves the others.
bool can_box_pool(const Tensor& x);

}  // namespace bilevel::nas
