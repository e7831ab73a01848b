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

// Both functions work on classes x rows and classes x columns: with few classes, the exponentials and sums of
// a row each end in the middle of a vector of the processor, those of a class do not.

// Columns x 1, or x classes.
Tensor as_matrix(const Tensor& penalty) { return penalty.dim() == 1 ? penalty.unsqueeze(1) : penalty; }

// The inverse root of a column's curvature: of a standardised one's at p = 1/2, and of its penalty.
Tensor column_lengths(const Tensor& penalty) { return (as_matrix(penalty) + 0.25).rsqrt(); }

}  // namespace

SoftmaxFit fit_softmax(const Tensor& rows, const SoftmaxTargets& targets, const Tensor& penalty,
                       const Tensor& start, double tolerance) {
  const Tensor length = column_lengths(penalty).t().contiguous(), ridge = as_matrix(penalty).t().contiguous();
  const Tensor columns = rows.t(), values = targets.values.t().contiguous();
  const std::vector<int64_t> shape{start.size(1), start.size(0)};
  const auto count = static_cast<double>(rows.size(0));
  const auto gradient = [&](const Tensor& flat) {
    const Tensor weights = flat.view(shape) * length;
    Tensor residual = weights.mm(columns).softmax(0);
    if (targets.kind == TargetKind::soft_labels) {
      residual.sub_(values);
    } else {
      // p - q with q the posterior of the true label: p t over its sum.
      const Tensor joint = residual * values;
      residual.sub_(joint.div_(joint.sum(0, true).clamp_min_(1e-300)));
    }
    return residual.mm(rows).div_(count).addcmul_(weights, ridge).mul_(length).flatten();
  };
  LbfgsOptions options;
  options.tolerance = tolerance;
  options.most_gradients = most_fit_gradients;
  options.memory = lbfgs_memory;
  const LbfgsResult found = minimize(gradient, (start.t() / length).flatten(), options);
  if (found.status == Status::not_finite) {
    throw std::runtime_error("softmax regression: the gradient is not finite; are the features too large?");
  }
  return {.weights = (found.w.view(shape) * length).t().contiguous(),
          .gradients = found.gradients,
          .gradient_norm = found.gradient_norm,
          .converged = found.status == Status::converged};
}

HessianSolve solve_softmax_hessian(const Tensor& rows, const Tensor& weights, const Tensor& penalty,
                                   const Tensor& b, double tolerance) {
  const Tensor length = column_lengths(penalty).t().contiguous(), ridge = as_matrix(penalty).t().contiguous();
  const Tensor columns = rows.t();
  const std::vector<int64_t> shape{b.size(1), b.size(0)};
  const auto count = static_cast<double>(rows.size(0));
  const Tensor p = weights.t().mm(columns).softmax(0);
  const auto product = [&](const Tensor& flat) {
    const Tensor v = flat.view(shape) * length;
    const Tensor scores = v.mm(columns).mul_(p);
    const Tensor curved = at::addcmul(scores, p, scores.sum(0, true), -1);
    return curved.mm(rows).div_(count).addcmul_(v, ridge).mul_(length).flatten();
  };
  KrylovSolveOptions options;
  options.max_iterations = most_products;
  options.relative_tolerance = tolerance;
  const LinearResult solved = conjugate_gradient(product, (b.t() * length).flatten(), options);
  if (solved.status == Status::not_finite) {
    throw std::runtime_error("softmax regression: a Hessian product is not finite");
  }
  return {.solution = (solved.solution.view(shape) * length).t().contiguous(),
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
