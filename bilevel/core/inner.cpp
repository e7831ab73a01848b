#include "bilevel/core/inner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/clipped.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

// rate * t, and a + rate * b, for either kind of rate.
Tensor scale(const Tensor& t, const StepRate& rate) {
  return rate.learned.defined() ? t * rate.learned : t * rate.value;
}
Tensor minus_scaled(const Tensor& a, const Tensor& b, const StepRate& rate) {
  return rate.learned.defined() ? a - rate.learned * b : at::add(a, b, -rate.value);
}

// w' = w - rate g
class GradientDescent : public InnerOptimizer {
 public:
  std::string_view name() const override { return "gd"; }
  int64_t buffer_count() const override { return 0; }

  InnerState step(const InnerState& before, const Tensor& gradient, const StepRate& rate) const override {
    return {minus_scaled(before.w, gradient, rate), {}, before.step + 1};
  }

  StepAdjoint adjoint(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                      const InnerState& after_adjoint) const override {
    StepAdjoint result;
    result.before = {after_adjoint.w, {}, before.step};
    result.gradient = scale(after_adjoint.w, rate).neg_();
    if (rate.learned.defined()) result.rate = -gradient * after_adjoint.w;
    return result;
  }

  InnerState tangent(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                     const InnerState& before_tangent, const Tensor& gradient_tangent,
                     const Tensor& rate_tangent) const override {
    Tensor w = minus_scaled(before_tangent.w, gradient_tangent, rate);
    if (rate_tangent.defined()) w = w - rate_tangent * gradient;
    return {w, {}, before.step + 1};
  }

  double largest_safe_rate(double largest_curvature) const override {
    return largest_curvature > 0 ? 2 / largest_curvature : std::numeric_limits<double>::infinity();
  }
};

// m' = beta m + g; heavy ball: w' = w - rate m'; Nesterov: w' = w - rate (g + beta m'). PyTorch's form of
// both.
class Momentum : public InnerOptimizer {
 public:
  Momentum(double beta, bool nesterov) : beta_(beta), nesterov_(nesterov) {}
  std::string_view name() const override { return nesterov_ ? "nesterov" : "heavy-ball"; }
  int64_t buffer_count() const override { return 1; }

  InnerState step(const InnerState& before, const Tensor& gradient, const StepRate& rate) const override {
    const Tensor m = at::add(gradient, before.buffers[0], beta_);
    return {minus_scaled(before.w, direction(gradient, m), rate), {m}, before.step + 1};
  }

  StepAdjoint adjoint(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                      const InnerState& after_adjoint) const override {
    const Tensor scaled = scale(after_adjoint.w, rate);
    StepAdjoint result;
    const Tensor m_adjoint = at::add(after_adjoint.buffers[0], scaled, nesterov_ ? -beta_ : -1.0);
    result.before = {after_adjoint.w, {m_adjoint * beta_}, before.step};
    result.gradient = nesterov_ ? m_adjoint - scaled : m_adjoint;
    if (rate.learned.defined()) {
      const Tensor m = at::add(gradient, before.buffers[0], beta_);
      result.rate = -direction(gradient, m) * after_adjoint.w;
    }
    return result;
  }

  InnerState tangent(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                     const InnerState& before_tangent, const Tensor& gradient_tangent,
                     const Tensor& rate_tangent) const override {
    const Tensor m_tangent = at::add(gradient_tangent, before_tangent.buffers[0], beta_);
    Tensor w = minus_scaled(before_tangent.w, direction(gradient_tangent, m_tangent), rate);
    if (rate_tangent.defined()) {
      const Tensor m = at::add(gradient, before.buffers[0], beta_);
      w = w - rate_tangent * direction(gradient, m);
    }
    return {w, {m_tangent}, before.step + 1};
  }

  // From the roots of the step's characteristic polynomial on a quadratic.
  double largest_safe_rate(double largest_curvature) const override {
    if (largest_curvature <= 0) return std::numeric_limits<double>::infinity();
    return 2 * (1 + beta_) / (nesterov_ ? 1 + 2 * beta_ : 1.0) / largest_curvature;
  }

 private:
  Tensor direction(const Tensor& gradient, const Tensor& m) const {
    return nesterov_ ? at::add(gradient, m, beta_) : m;
  }

  double beta_;
  bool nesterov_;
};

// Adam with bias correction. Where the second moment is exactly zero every gradient so far was zero, and with
// them the first moment: the derivative through the square root is then 0 * infinity, whose limit is 0, and
// is taken as such.
class Adam : public InnerOptimizer {
 public:
  Adam(double beta1, double beta2, double epsilon) : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  std::string_view name() const override { return "adam"; }
  int64_t buffer_count() const override { return 2; }
  bool adjoint_needs_gradient() const override { return true; }

  InnerState step(const InnerState& before, const Tensor& gradient, const StepRate& rate) const override {
    const Moments now = moments(before, gradient);
    return {minus_scaled(before.w, now.m_hat / now.denominator, rate), {now.m, now.v}, before.step + 1};
  }

  StepAdjoint adjoint(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                      const InnerState& after_adjoint) const override {
    const Moments now = moments(before, gradient);
    const Tensor scaled = scale(after_adjoint.w, rate);
    const Tensor m_adjoint = after_adjoint.buffers[0] - scaled / (now.denominator * now.correction1);
    const Tensor v_adjoint =
        after_adjoint.buffers[1] + scaled * now.m_hat * now.half_inverse_root / now.denominator.square();
    StepAdjoint result;
    result.before = {after_adjoint.w, {m_adjoint * beta1_, v_adjoint * beta2_}, before.step};
    result.gradient = m_adjoint * (1 - beta1_) + gradient * v_adjoint * (2 * (1 - beta2_));
    if (rate.learned.defined()) result.rate = -(now.m_hat / now.denominator) * after_adjoint.w;
    return result;
  }

  InnerState tangent(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                     const InnerState& before_tangent, const Tensor& gradient_tangent,
                     const Tensor& rate_tangent) const override {
    const Moments now = moments(before, gradient);
    const Tensor m_tangent = before_tangent.buffers[0] * beta1_ + gradient_tangent * (1 - beta1_);
    const Tensor v_tangent =
        before_tangent.buffers[1] * beta2_ + gradient * gradient_tangent * (2 * (1 - beta2_));
    const Tensor direction_tangent = m_tangent / (now.denominator * now.correction1) -
                                     now.m_hat * now.half_inverse_root * v_tangent / now.denominator.square();
    Tensor w = minus_scaled(before_tangent.w, direction_tangent, rate);
    if (rate_tangent.defined()) w = w - rate_tangent * now.m_hat / now.denominator;
    return {w, {m_tangent, v_tangent}, before.step + 1};
  }

  double largest_safe_rate(double /*largest_curvature*/) const override {
    return std::numeric_limits<double>::infinity();  // a step is bounded by the rate whatever the curvature
  }

 private:
  struct Moments {
    Tensor m, v, m_hat, denominator;
    Tensor half_inverse_root;  // d sqrt(v_hat) / d v
    double correction1;
  };

  Moments moments(const InnerState& before, const Tensor& gradient) const {
    const double t = static_cast<double>(before.step + 1);
    Moments now;
    now.correction1 = 1 - std::pow(beta1_, t);
    const double correction2 = 1 - std::pow(beta2_, t);
    now.m = before.buffers[0] * beta1_ + gradient * (1 - beta1_);
    now.v = before.buffers[1] * beta2_ + gradient.square() * (1 - beta2_);
    now.m_hat = now.m / now.correction1;
    const Tensor v_hat = now.v / correction2;
    // The root of a one where v is zero, masked afterwards: also automatic differentiation through this step,
    // which serves as a reference, then meets no infinity.
    const Tensor positive = v_hat > 0;
    const Tensor root = at::where(positive, v_hat, at::ones_like(v_hat)).sqrt();
    const Tensor mask = positive.to(v_hat.scalar_type());
    now.denominator = root * mask + epsilon_;
    now.half_inverse_root = mask / (root * (2 * correction2));
    return now;
  }

  double beta1_, beta2_, epsilon_;
};

}  // namespace

int64_t InnerState::bytes() const {
  int64_t total = static_cast<int64_t>(w.nbytes());
  for (const Tensor& b : buffers) total += static_cast<int64_t>(b.nbytes());
  return total;
}

InnerState InnerOptimizer::start(const Tensor& w) const {
  InnerState state{w, {}, 0};
  for (int64_t i = 0; i < buffer_count(); ++i) state.buffers.push_back(at::zeros_like(w));
  return state;
}

void InnerOptions::validate() const {
  const auto& names = inner_optimizer_names();
  if (std::find(names.begin(), names.end(), optimizer) == names.end()) {
    refuse_unknown("inner optimizer", optimizer, names);
  }
  // A trajectory remembers the batch of every step.
  require_between("inner_steps", steps, 0, 1'000'000'000);
  require_positive("inner_rate", rate);
  require_below_one("inner_momentum", momentum);
  require_below_one("inner_beta1", beta1);
  require_below_one("inner_beta2", beta2);
  require_positive("inner_epsilon", epsilon);
  require(clip_norm >= 0 && std::isfinite(clip_norm), "inner_clip", clip_norm,
          "finite and at least 0; 0 is no clipping");
  schedule.validate();
}

const std::vector<std::string>& inner_optimizer_names() {
  static const std::vector<std::string> names = {"gd", "heavy-ball", "nesterov", "adam"};
  return names;
}

namespace {

std::unique_ptr<InnerOptimizer> make_unclipped(const InnerOptions& options) {
  if (options.optimizer == "gd") return std::make_unique<GradientDescent>();
  if (options.optimizer == "heavy-ball") return std::make_unique<Momentum>(options.momentum, false);
  if (options.optimizer == "nesterov") return std::make_unique<Momentum>(options.momentum, true);
  return std::make_unique<Adam>(options.beta1, options.beta2, options.epsilon);
}

}  // namespace

std::unique_ptr<InnerOptimizer> make_inner_optimizer(const InnerOptions& options) {
  options.validate();
  std::unique_ptr<InnerOptimizer> optimizer = make_unclipped(options);
  if (options.clip_norm == 0) return optimizer;
  return std::make_unique<ClippedInner>(std::move(optimizer), options.clip_norm);
}

}  // namespace bilevel
