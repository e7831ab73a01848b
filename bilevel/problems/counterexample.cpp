#include "bilevel/problems/counterexample.h"

#include <ATen/ATen.h>

#include <cmath>

namespace bilevel {

Counterexample::Counterexample(const at::TensorOptions& tensors, double target)
    : tensors_(tensors), target_(target) {}

Tensor Counterexample::inner_loss(const Tensor& w, const Tensor& x, const Batch& /*batch*/) const {
  const Tensor gap = w - x;
  return 0.5 * gap.dot(gap);
}

Tensor Counterexample::outer_loss(const Tensor& w, const Tensor& x, const Batch& /*batch*/) const {
  const Tensor gap = x - target_;
  return 0.5 * w.dot(w) + 0.5 * gap.dot(gap);
}

// Started away from x, so that the steps are seen; x is neither the optimum nor the target.
Tensor Counterexample::initial_inner(uint64_t /*seed*/) const { return at::full({1}, 2.0, tensors_); }
Tensor Counterexample::initial_outer(uint64_t /*seed*/) const { return at::full({1}, 0.25, tensors_); }

std::optional<LossConstants> Counterexample::loss_constants(const Tensor& /*x*/) const {
  return LossConstants{.strong_convexity = 1, .smoothness = 1, .cross_norm = 1, .outer_w = 1};
}

std::optional<EvaluationErrors> Counterexample::evaluation_errors(const Tensor& w, const Tensor& x) const {
  const double epsilon = machine_epsilon(w);
  EvaluationErrors errors;
  errors.gradient = errors.outer_w = 4 * epsilon * (norm_above(w) + norm_above(x));
  errors.outer_x = 4 * epsilon * (norm_above(x) + std::abs(target_));
  errors.hessian = errors.cross = 4 * epsilon;
  return errors;
}

}  // namespace bilevel
