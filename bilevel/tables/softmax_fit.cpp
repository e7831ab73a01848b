#include "bilevel/tables/softmax_fit.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "bilevel/core/lbfgs.h"
#include "bilevel/core/linear_solve.h"

namespace bilevel {
namespace {

constexpr double intercept_penalty = 1e-9;
constexpr int64_t most_fit_gradients = 1000, most_products = 1000, lbfgs_memory = 10;

// Columns x 1, or x classes.
Tensor as_matrix(const Tensor& penalty) { return penalty.dim() == 1 ? penalty.unsqueeze(1) : penalty; }

// The inverse root of a column's curvature: of a standardised one's at p = 1/2, and of its penalty.
Tensor column_lengths(const Tensor& penalty) { return (as_matrix(penalty) + 0.25).rsqrt(); }

}  // namespace

SoftmaxFit fit_softmax(const Tensor& rows, const SoftmaxTargets& targets, const Tensor& penalty,
                       const Tensor& start, double tolerance) {
  const Tensor length = column_lengths(penalty), ridge = as_matrix(penalty), transposed = rows.t();
  const auto count = static_cast<double>(rows.size(0));
  const auto gradient = [&](const Tensor& flat) {
    const Tensor weights = flat.view(start.sizes()) * length;
    Tensor residual = rows.mm(weights).softmax(1);
    if (targets.kind == TargetKind::soft_labels) {
      residual.sub_(targets.values);
    } else {
      // p - q with q the posterior of the true label: p t over its sum.
      const Tensor joint = residual * targets.values;
      residual.sub_(joint.div_(joint.sum(1, true).clamp_min_(1e-300)));
    }
    return transposed.mm(residual).div_(count).addcmul_(weights, ridge).mul_(length).flatten();
  };
  LbfgsOptions options;
  options.tolerance = tolerance;
  options.most_gradients = most_fit_gradients;
  options.memory = lbfgs_memory;
  const LbfgsResult found = minimize(gradient, (start / length).flatten(), options);
  if (found.status == Status::not_finite) {
    throw std::runtime_error("softmax regression: the gradient is not finite; are the features too large?");
  }
  return {.weights = found.w.view(start.sizes()) * length,
          .gradients = found.gradients,
          .gradient_norm = found.gradient_norm,
          .converged = found.status == Status::converged};
}

HessianSolve solve_softmax_hessian(const Tensor& rows, const Tensor& weights, const Tensor& penalty,
                                   const Tensor& b, double tolerance) {
  const Tensor length = column_lengths(penalty), ridge = as_matrix(penalty), transposed = rows.t();
  const auto count = static_cast<double>(rows.size(0));
  const Tensor p = rows.mm(weights).softmax(1);
  const auto product = [&](const Tensor& flat) {
    const Tensor v = flat.view(b.sizes()) * length;
    const Tensor scores = rows.mm(v).mul_(p);
    const Tensor curved = at::addcmul(scores, p, scores.sum(1, true), -1);
    return transposed.mm(curved).div_(count).addcmul_(v, ridge).mul_(length).flatten();
  };
  KrylovSolveOptions options;
  options.max_iterations = most_products;
  options.relative_tolerance = tolerance;
  const LinearResult solved = conjugate_gradient(product, (b * length).flatten(), options);
  if (solved.status == Status::not_finite) {
    throw std::runtime_error("softmax regression: a Hessian product is not finite");
  }
  return {.solution = solved.solution.view(b.sizes()) * length,
          .products = solved.products,
          .converged = solved.status == Status::converged};
}

Tensor penalties(const Tensor& logarithms, int64_t rows) {
  std::vector<int64_t> one_row = logarithms.sizes().vec();
  one_row[0] = 1;
  const Tensor intercept = at::full(one_row, intercept_penalty, at::kDouble);
  return at::cat({logarithms.exp() / static_cast<double>(rows), intercept});
}

Tensor label_matrix(const Tensor& labels, int64_t classes) {
  return at::one_hot(labels, classes).to(at::kDouble);
}

}  // namespace bilevel
