#include "bilevel/core/clipped.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

namespace bilevel {
namespace {

constexpr double guard = 1e-6;  // PyTorch's, so that published settings mean the same here

}  // namespace

ClippedInner::ClippedInner(std::unique_ptr<const InnerOptimizer> base, double largest_norm)
    : base_(std::move(base)), largest_norm_(largest_norm) {
  if (!base_) throw std::invalid_argument("clipping: the optimizer that it goes around is null");
  if (!(largest_norm > 0) || !std::isfinite(largest_norm)) {
    throw std::invalid_argument(fmt::format("inner_clip = {}: must be finite and above 0", largest_norm));
  }
  name_ = fmt::format("{} clipped at {:g}", base_->name(), largest_norm);
}

Tensor ClippedInner::clipped(const Tensor& gradient) const {
  return gradient * (largest_norm_ / (gradient.norm() + guard)).clamp_max(1);
}

Tensor ClippedInner::jacobian(const Tensor& gradient, const Tensor& v) const {
  const Tensor norm = gradient.norm();
  const Tensor factor = largest_norm_ / (norm + guard);
  const Tensor clips = (factor < 1).to(gradient.scalar_type());
  const Tensor unit = gradient / norm.clamp_min(1e-30);  // zero where the gradient is
  // d factor = -factor / (norm + guard) <unit, dg>
  const Tensor along = clips * factor * norm / (norm + guard) * (unit * v).sum();
  return v * factor.clamp_max(1) - unit * along;
}

InnerState ClippedInner::step(const InnerState& before, const Tensor& gradient, const StepRate& rate) const {
  return base_->step(before, clipped(gradient), rate);
}

StepAdjoint ClippedInner::adjoint(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                                  const InnerState& after_adjoint) const {
  StepAdjoint result = base_->adjoint(before, clipped(gradient), rate, after_adjoint);
  result.gradient = jacobian(gradient, result.gradient);
  return result;
}

InnerState ClippedInner::tangent(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                                 const InnerState& before_tangent, const Tensor& gradient_tangent,
                                 const Tensor& rate_tangent) const {
  return base_->tangent(before, clipped(gradient), rate, before_tangent, jacobian(gradient, gradient_tangent),
                        rate_tangent);
}

}  // namespace bilevel
