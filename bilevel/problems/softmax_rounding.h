#pragma once
// How far the derivatives of softmax regression can be from exact ones by rounding (core/rounding.h), for the
// closed forms of softmax_point.h and for automatic differentiation of cross entropies alike: both go through
// the same steps, whose errors are followed here.
//
// Example by example, with R = |phi|, d features, c classes and u the unit roundoff:
//   scores         z = W phi errs by gamma_(d+1) Z, where Z = R times the longest row of W bounds every
//   |z_k|. probabilities  the logarithm of s_k errs by the score's error twice (its own and that of the sum),
//   by the rounding of
//                  differences of scores and by exp, log and the sum over classes:
//                  lambda = 2 gamma_(d+1) Z + eps (4 Z + 2 c + 16), so s errs by rho = e^lambda - 1 at most,
//                  as a vector.
//   residual       a (s - e_y) errs by a (rho + 16 eps sqrt 2), where a is the example's weight.
//   curvature      with |V| = 1 and t = V phi, s * t - s <s, t> errs by
//                  R (3 rho + 2 gamma_(d+1) + gamma_(c+1) + 16 eps) (1 + rho)^2.
//   sums           over N examples and the regulariser add gamma_(N+4) of the terms' lengths.

#include "bilevel/core/rounding.h"
#include "bilevel/core/tensor.h"
#include "bilevel/problems/feature_matrix.h"
#include "bilevel/problems/softmax_point.h"

namespace bilevel {

// Of mean_i sigmoid(x_i) CE_i(W) + regularization |W|^2 and the validation mean.
EvaluationErrors weighted_softmax_errors(const FeatureMatrix& train, const FeatureMatrix& valid,
                                         const WeightLayout& layout, const Tensor& w, const Tensor& x,
                                         double regularization);
// Of mean_i CE_i(W) + sum_jk ridge_j W_jk^2 / 2 and the validation mean; `ridge` in double precision.
EvaluationErrors ridge_softmax_errors(const FeatureMatrix& train, const FeatureMatrix& valid,
                                      const WeightLayout& layout, const Tensor& w, const Tensor& ridge);

}  // namespace bilevel
