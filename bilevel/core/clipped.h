#pragma once
// Gradient clipping around any inner optimiser: the gradient is scaled so that its norm is at most a given
// one before the step, as PyTorch's clip_grad_norm_ does it (with its 1e-6),
//
//     g <- g min(1, c / (|g| + 1e-6)).
//
// Where it clips, its Jacobian  s (I - s/c |g| u u'),  s = c / (|g| + 1e-6), u = g / |g|,  is part of the
// step's derivative: the part of a vector along the gradient is all but lost. Nothing here waits for the
// device: whether it clips is a tensor.

#include <memory>
#include <string>

#include "bilevel/core/inner.h"

namespace bilevel {

class ClippedInner : public InnerOptimizer {
 public:
  // Throws std::invalid_argument unless largest_norm is positive and finite.
  ClippedInner(std::unique_ptr<const InnerOptimizer> base, double largest_norm);

  std::string_view name() const override { return name_; }
  int64_t buffer_count() const override { return base_->buffer_count(); }
  bool adjoint_needs_gradient() const override { return true; }
  InnerState step(const InnerState& before, const Tensor& gradient, const StepRate& rate) const override;
  StepAdjoint adjoint(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                      const InnerState& after_adjoint) const override;
  InnerState tangent(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                     const InnerState& before_tangent, const Tensor& gradient_tangent,
                     const Tensor& rate_tangent) const override;
  // The base's: near a minimum gradients are short and nothing is clipped.
  double largest_safe_rate(double largest_curvature) const override {
    return base_->largest_safe_rate(largest_curvature);
  }

 private:
  Tensor clipped(const Tensor& gradient) const;
  Tensor jacobian(const Tensor& gradient, const Tensor& v) const;  // symmetric: also its transpose

  std::unique_ptr<const InnerOptimizer> base_;
  double largest_norm_;
  std::string name_;  // "nesterov clipped at 5", for messages
};

}  // namespace bilevel
