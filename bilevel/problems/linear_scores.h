#pragma once
// Products of a feature matrix with small dense ones, as operations of autograd: differentiable any number of
// times, because the derivative of a product with X is a product with its transpose. With these a closed form
// has a loss that can be checked against it, on sparse data too.

#include "bilevel/core/tensor.h"
#include "bilevel/problems/feature_matrix.h"

namespace bilevel {

// `index` are a batch's rows, already checked (problems/batch_rows.h); undefined = all. Few columns only: the
// kernels are made for one per class. Throws std::invalid_argument for sizes or types that do not fit.
Tensor linear_scores(const FeatureMatrix& data, const Tensor& index, const Tensor& matrix);       // X W
Tensor transposed_scores(const FeatureMatrix& data, const Tensor& index, const Tensor& factors);  // X' R

// The largest eigenvalue of X'X by 30 power iterations, which approach it from below.
double largest_gram_eigenvalue(const FeatureMatrix& data);

}  // namespace bilevel
