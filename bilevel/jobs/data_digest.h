#pragma once
// What a resumed run compares its data by: every number of them, bit for bit.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/problems/feature_matrix.h"

namespace bilevel {

// Of tensors and sizes: tells other numbers, another part of a set or another order. An undefined tensor is
// one that is not there.
std::string data_digest(const std::vector<Tensor>& contents, const std::vector<int64_t>& sizes);

// All numbers of a matrix, dense or sparse, as tensors.
std::vector<Tensor> contents_of(const Features& features);
std::vector<Tensor> contents_of(const FeatureMatrix& features);

}  // namespace bilevel
