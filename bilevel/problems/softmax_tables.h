#pragma once
// Between the flat w and the kernels' tables (softmax_kernels.h): features x stride, zero beyond the classes.

#include "bilevel/core/tensor.h"
#include "bilevel/problems/softmax_point.h"

namespace bilevel::softmax {

// Where w goes feature by feature and the classes fill the stride, both are w's own memory, not a copy.
Tensor pack(const Tensor& flat, const WeightLayout& layout);
Tensor unpack(const Tensor& table, const WeightLayout& layout);
Tensor empty_table(const WeightLayout& layout, const at::TensorOptions& options);

}  // namespace bilevel::softmax
