#include "bilevel/problems/toy.h"

#include <ATen/ATen.h>

#include <cmath>

namespace bilevel {
namespace {

Tensor pair(double first, double second, const at::TensorOptions& options) {
  return at::tensor({first, second}, at::TensorOptions().dtype(at::kDouble)).to(options);
}

}  // namespace

Toy::Toy(const at::TensorOptions& tensors, bool interfering)
    : tensors_(tensors),
      interfering_(interfering),
      curvature_(pair(1, 0.5, tensors)),
      attractor_(pair(1, 0, tensors)) {}

Tensor Toy::inner_loss(const Tensor& w, const Tensor& x, const Batch& /*batch*/) const {
  const Tensor gap = w - x;
  return 0.5 * (curvature_ * gap * gap).sum();
}

Tensor Toy::outer_loss(const Tensor& w, const Tensor& x, const Batch& /*batch*/) const {
  const Tensor sine = w.sin();
  Tensor loss = w.dot(w) + 10 * sine.dot(sine);
  if (interfering_) {
    const Tensor gap = x - attractor_;
    loss = loss + 5 * gap.dot(gap);
  }
  return loss;
}

Tensor Toy::initial_inner(uint64_t /*seed*/) const { return pair(2, 2, tensors_); }
Tensor Toy::initial_outer(uint64_t /*seed*/) const { return pair(1, 1, tensors_); }

// H = G and C = -G; f'' = 2 + 20 cos 2w in every coordinate.
std::optional<LossConstants> Toy::loss_constants(const Tensor& /*x*/) const {
  return LossConstants{.strong_convexity = 0.5, .smoothness = 1, .cross_norm = 1, .outer_w = 22};
}

// Everything is entry by entry: a handful of roundings each, and sin and cos.
std::optional<EvaluationErrors> Toy::evaluation_errors(const Tensor& w, const Tensor& x) const {
  const double epsilon = machine_epsilon(w);
  const double size = norm_above(w) + norm_above(x);
  EvaluationErrors errors;
  errors.gradient = 8 * epsilon * size;
  errors.hessian = errors.cross = 8 * epsilon;
  errors.outer_w = 32 * epsilon * (2 * norm_above(w) + 20 * std::sqrt(2.0));  // 2 w + 20 sin w cos w
  errors.outer_x = interfering_ ? 80 * epsilon * (norm_above(x) + 1) : 0;     // 10 (x - attractor)
  return errors;
}

}  // namespace bilevel
