#pragma once
// Between the flat w and the kernels' tables (softmax_kernels.h): features x stride for sparse data, classes
// x padded features for dense data, zero beyond the classes and features.

#include "bilevel/core/tensor.h"
#include "bilevel/problems/feature_matrix.h"
#include "bilevel/problems/softmax_point.h"

namespace bilevel::softmax {

enum class Table { by_feature, by_class };
Table table_for(const FeatureMatrix& data);

// Where the flat vector has the table's order and fills its rows, both are its own memory, not a copy.
Tensor pack(const Tensor& flat, const WeightLayout& layout, Table order);
Tensor unpack(const Tensor& table, const WeightLayout& layout, Table order);
Tensor empty_table(const WeightLayout& layout, Table order, const at::TensorOptions& options);

}  // namespace bilevel::softmax
