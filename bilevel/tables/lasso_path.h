#pragma once
// Penalties of a regression's columns that follow from one number. The lasso,
//
//     min_{w, b}  1/2 sum_i (y_i - b - X_i w)^2 + lambda sum_j |w_j| / size_j,
//
// is where ridge regression with penalty_j = lambda / (size_j |w_j|) stays, so that each lambda gives a
// penalty for every column, and one held-out loss chooses among them: where few columns matter, that is far
// less to overfit than as many numbers as there are columns. Sizes are 1, or, in the adaptive lasso (Zou
// 2006), the coefficients of ridge regression, which spares columns that matter from being held down.

#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/held_out_loss.h"

namespace bilevel {

// By coordinate descent on the Gram matrix, from w. `thresholds`: lambda / size_j.
Tensor fit_lasso(const Tensor& gram, const Tensor& product, const Tensor& thresholds, const Tensor& start);

struct LassoPath {
  Tensor logarithms;  // of the columns' penalties, from all rows that a final model is fitted to
  Tensor losses;      // one per held-out row, each from a fit without its fold
  double lambda = 0;
};
// The best lambda of a path by the mean of `losses`. `ridge_logarithm`: of the one penalty that sizes come
// from; not a number: all sizes are 1.
LassoPath lasso_path(const HeldOutRows& rows, double ridge_logarithm);

}  // namespace bilevel
