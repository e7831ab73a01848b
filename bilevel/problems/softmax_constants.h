#pragma once
// The constants of softmax regression's losses, from the data and for every W: what makes error bounds on
// these problems rigorous (core/error_bound.h).
//
// With s = softmax(W phi) of an example, the cross entropy's derivatives in the scores z = W phi are
//   first    s - e_y, of norm at most sqrt(2);
//   second   the variance of u under s: at most (range of u / 2)^2 <= |u|^2 / 2, a unit u having a range of
//   at
//            most sqrt(2);
//   third    its third central moment. On a symmetric form the largest value over unit vectors is met with
//            all three arguments equal, and a variable of range R has a third moment of at most
//            R^3 / (6 sqrt(3)), met on two points: so sqrt(2) / (3 sqrt(3)) |u|^3.
// Along a direction U of W, u = U phi. Sums over examples with weights a_i use
//   sum a_i |U phi_i|^2 <= S |U|^2   with S the largest eigenvalue of sum a_i phi_i phi_i',
// and |U phi_i| <= R |U| with R the longest row, for the third factor.

#include "bilevel/core/error_bound.h"
#include "bilevel/core/tensor.h"
#include "bilevel/problems/feature_matrix.h"

namespace bilevel {

// An upper bound of the largest eigenvalue of sum_i weights_i phi_i phi_i' over the rows phi_i, weights >= 0:
// the eigenvalue itself, enclosed (core/enclosure.h), where rows or features are at most 1,000 and the matrix
// fits; else Collatz and Wielandt's quotient of the entries' absolute values, which is close where features
// are not negative.
double largest_gram_bound(const FeatureMatrix& rows, const Tensor& weights);

// Of mean_i sigmoid(x_i) CE_i(W) + regularization |W|^2 and the validation mean.
LossConstants weighted_softmax_constants(const FeatureMatrix& train, const FeatureMatrix& valid,
                                         const Tensor& x, double regularization);
// Of mean_i CE_i(W) + sum_jk ridge_j W_jk^2 / 2, where ridge_j is proportional to exp(x_j) and in double
// precision, and the validation mean. The cross derivative has no bound over all W: its norm is infinite
// here.
LossConstants ridge_softmax_constants(const FeatureMatrix& train, const FeatureMatrix& valid,
                                      const Tensor& ridge);

FeatureMatrix dense_rows(const Tensor& features);  // as a matrix on the CPU
Tensor row_lengths(const FeatureMatrix& rows);     // |phi_i| in double precision, rounded up
Tensor equal_weights(const FeatureMatrix& rows);   // 1 / N each, in double precision

}  // namespace bilevel
