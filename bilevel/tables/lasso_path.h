#pragma once
// Penalties of a regression's columns that follow from one number. The lasso,
//
//     min_{w, b}  1/2 sum_i (y_i - b - X_i w)^2 + lambda sum_j |w_j| / size_j,
//
// is where ridge regression with penalty_j = lambda / (size_j |w_j|) stays, so that each lambda gives a
// penalty for every column, and one held-out loss chooses among them: where few columns matter, that is far
// less to overfit than as many numbers as there are columns. Sizes are 1, or, in the adaptive lasso (Zou
// 2006), the coefficients of ridge regression, which spares columns that matter from being held down.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/held_out_loss.h"

namespace bilevel {

// By coordinate descent on the Gram matrix, from w. `thresholds`: lambda / size_j.
Tensor fit_lasso(const Tensor& gram, const Tensor& product, const Tensor& thresholds, const Tensor& start);

struct LassoPath {
  Tensor logarithms;   // of the columns' penalties, from all rows that a final model is fitted to
  Tensor differences;  // prediction - target, one per held-out row, each from a fit without its fold
  double lambda = 0;
};
// The best lambda of a path by the mean square of `differences`. `ridge_logarithms`: of the ridge
// regression's penalties that sizes come from, one for each column; not defined: all sizes are 1.
LassoPath lasso_path(const HeldOutRows& rows, const Tensor& ridge_logarithms);

// How likely each of some models is the one that predicts new rows, as shares of the whole: m^(-n/2) with the
// mean square m of its differences on the same n held-out rows, on average over weights of these rows as a
// Bayesian bootstrap draws them (pseudo-BMA+: Yao et al. 2018). What is clearly best has it all, and near
// ties are shared: the smallest m of several that differ by chance is no reason to leave the others out.
std::vector<double> likelihood_shares(const std::vector<Tensor>& differences, uint64_t seed);

}  // namespace bilevel
