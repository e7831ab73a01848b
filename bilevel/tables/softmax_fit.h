#pragma once
// Softmax regression on a scaled table, solved to a tolerance by L-BFGS on its closed-form gradient:
//
//     min_W  1/n sum_i loss_i(X_i W) + 1/2 sum_jk penalty_j W_jk^2
//
// with the cross entropy of soft labels, -sum_k q_ik log p_ik, or with the likelihood of labels that may be
// wrong, -log sum_k p_ik t_ik, where t_ik is the probability of the given label if the true one is k. The
// first is convex; the second is not, and a start from the first's solution finds the right valley.

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel {

enum class TargetKind { soft_labels, likelihoods };

struct SoftmaxTargets {
  Tensor values;  // rows x classes, at least 0; soft labels add up to 1
  TargetKind kind = TargetKind::soft_labels;
};

struct SoftmaxFit {
  Tensor weights;  // columns x classes
  int64_t gradients = 0;
  double gradient_norm = 0;  // of the scaled variables
  bool converged = false;
};

// `penalty`: one per column, or columns x classes, at least 0. `tolerance` is for the gradient's norm in
// variables that make every column's curvature about 1, so that it means the same for every penalty.
SoftmaxFit fit_softmax(const Tensor& rows, const SoftmaxTargets& targets, const Tensor& penalty,
                       const Tensor& start, double tolerance);

// H v = b for the fit's Hessian with soft labels, by conjugate gradients in the same variables: what an
// implicit gradient needs.
struct HessianSolve {
  Tensor solution;  // columns x classes
  int64_t products = 0;
  bool converged = false;  // to the tolerance
};
HessianSolve solve_softmax_hessian(const Tensor& rows, const Tensor& weights, const Tensor& penalty,
                                   const Tensor& b, double tolerance);

// One for each column, or columns x classes, and next to nothing for the last, the intercept. The logarithms
// are of penalties on the sum of the losses, as people give them: 1/C.
Tensor penalties(const Tensor& logarithms, int64_t rows);

Tensor label_matrix(const Tensor& labels, int64_t classes);  // double

}  // namespace bilevel
