#include "bilevel/core/outer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bilevel/core/errors.h"
#include "bilevel/core/finite.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return fmt::format("{} of shape ({}) on {}", at::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "), tensor.device().str());
}
bool alike(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         a.device() == b.device();
}

// A checkpoint's tensors come from outside: of another size they would be broadcast, of another number read
// past the end.
void require_state(const OuterTransform& transform, const std::vector<Tensor>& state, size_t count,
                   const Tensor& x) {
  bool fits = state.size() == count;
  for (const Tensor& tensor : state) fits = fits && alike(tensor, x);
  if (fits) return;
  throw std::invalid_argument(fmt::format(
      "outer: the state of {} must be {} tensors like x, {}, got {}, the first {}; resume with the optimiser "
      "that wrote the checkpoint",
      transform.name(), count, describe(x), state.size(), state.empty() ? "missing" : describe(state[0])));
}

class ClipByNorm : public OuterTransform {
 public:
  explicit ClipByNorm(double largest) : largest_(largest) { require_positive("outer_clip_norm", largest); }
  std::string name() const override { return "clip_by_norm"; }
  Tensor update(const Tensor& direction, const Tensor& /*x*/, int64_t /*step*/,
                std::vector<Tensor>& /*state*/) const override {
    if (direction.numel() == 0) return direction;
    // Scaled by its largest entry first: a plain norm overflows to infinity in float from 2e19 on, and the
    // clipped direction would be zero.
    const Tensor peak = direction.abs().max().clamp_min(std::numeric_limits<float>::min());
    const Tensor norm = (direction / peak).norm();
    return direction * (largest_ / peak / norm).clamp_max(1);
  }

 private:
  double largest_;
};

class ClipByValue : public OuterTransform {
 public:
  explicit ClipByValue(double largest) : largest_(largest) { require_positive("outer_clip_value", largest); }
  std::string name() const override { return "clip_by_value"; }
  Tensor update(const Tensor& direction, const Tensor& /*x*/, int64_t /*step*/,
                std::vector<Tensor>& /*state*/) const override {
    return direction.clamp(-largest_, largest_);
  }

 private:
  double largest_;
};

class WeightDecay : public OuterTransform {
 public:
  explicit WeightDecay(double decay) : decay_(decay) { require_nonnegative("outer_weight_decay", decay); }
  std::string name() const override { return "add_weight_decay"; }
  Tensor update(const Tensor& direction, const Tensor& x, int64_t /*step*/,
                std::vector<Tensor>& /*state*/) const override {
    return direction + decay_ * x;
  }

 private:
  double decay_;
};

class HeavyBall : public OuterTransform {
 public:
  explicit HeavyBall(double momentum) : momentum_(momentum) { require_below_one("outer_momentum", momentum); }
  std::string name() const override { return "heavy_ball"; }
  std::vector<Tensor> init(const Tensor& x) const override { return {at::zeros_like(x)}; }
  Tensor update(const Tensor& direction, const Tensor& x, int64_t /*step*/,
                std::vector<Tensor>& state) const override {
    require_state(*this, state, 1, x);
    state[0] = momentum_ * state[0] + direction;
    return state[0];
  }

 private:
  double momentum_;
};

class ScaleByAdam : public OuterTransform {
 public:
  ScaleByAdam(double beta1, double beta2, double epsilon) : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {
    require_below_one("outer_beta1", beta1);
    require_below_one("outer_beta2", beta2);
    require_positive("outer_epsilon", epsilon);
  }
  std::string name() const override { return "scale_by_adam"; }
  std::vector<Tensor> init(const Tensor& x) const override { return {at::zeros_like(x), at::zeros_like(x)}; }
  Tensor update(const Tensor& direction, const Tensor& x, int64_t step,
                std::vector<Tensor>& state) const override {
    require_state(*this, state, 2, x);
    state[0] = beta1_ * state[0] + (1 - beta1_) * direction;
    state[1] = beta2_ * state[1] + (1 - beta2_) * direction.square();
    const auto count = static_cast<double>(step) + 1;
    const Tensor mean = state[0] / (1 - std::pow(beta1_, count));
    const Tensor squares = state[1] / (1 - std::pow(beta2_, count));
    return mean / (squares.sqrt() + epsilon_);
  }

 private:
  double beta1_, beta2_, epsilon_;
};

class ScaleByRate : public OuterTransform {
 public:
  ScaleByRate(double rate, const Schedule& schedule) : rate_(rate), schedule_(schedule) {
    require_positive("outer_rate", rate);
    schedule.validate();
  }
  std::string name() const override { return "scale_by_rate"; }
  Tensor update(const Tensor& direction, const Tensor& /*x*/, int64_t step,
                std::vector<Tensor>& /*state*/) const override {
    return direction * (rate_ * schedule_.factor(step));
  }

 private:
  double rate_;
  Schedule schedule_;
};

void require_finite_hypergradient(const Tensor& hypergradient, int64_t step, FiniteChecks& checks) {
  if (checks.all_finite(hypergradient)) return;
  const Tensor finite = at::isfinite(hypergradient);
  const auto nans = at::isnan(hypergradient).sum().item<int64_t>();
  const auto bad = hypergradient.numel() - finite.sum().item<int64_t>();
  throw NotFiniteError(
      fmt::format("outer step {}: the hypergradient has {} of {} entries that are not finite ({} NaN, {} "
                  "infinite); x is left as "
                  "it was. Look for an inner rate that is too large or a linear solve that broke down",
                  step, bad, hypergradient.numel(), nans, bad - nans));
}

// One answer for all tensors, so that a GPU is waited for once.
bool finite_after(const Tensor& next, const OuterState& state, FiniteChecks& checks) {
  Tensor largest = next.numel() > 0 ? next.abs().max() : at::zeros({}, next.options());
  for (const auto& tensors : state.transforms) {
    for (const Tensor& tensor : tensors) {
      if (tensor.numel() > 0) largest = at::maximum(largest, tensor.abs().max());  // carries a NaN on
    }
  }
  return checks.finite_number(largest);
}

std::vector<OuterTransformPointer> prepared(const OuterPreparation& preparation) {
  std::vector<OuterTransformPointer> chain;
  if (preparation.clip_norm > 0) chain.push_back(clip_by_norm(preparation.clip_norm));
  if (preparation.clip_value > 0) chain.push_back(clip_by_value(preparation.clip_value));
  if (preparation.weight_decay > 0) chain.push_back(add_weight_decay(preparation.weight_decay));
  return chain;
}

}  // namespace

std::vector<Tensor> OuterTransform::init(const Tensor& /*x*/) const { return {}; }

OuterTransformPointer clip_by_norm(double largest_norm) { return std::make_shared<ClipByNorm>(largest_norm); }
OuterTransformPointer clip_by_value(double largest_value) {
  return std::make_shared<ClipByValue>(largest_value);
}
OuterTransformPointer add_weight_decay(double decay) { return std::make_shared<WeightDecay>(decay); }
OuterTransformPointer heavy_ball(double momentum) { return std::make_shared<HeavyBall>(momentum); }
OuterTransformPointer scale_by_adam(double beta1, double beta2, double epsilon) {
  return std::make_shared<ScaleByAdam>(beta1, beta2, epsilon);
}
OuterTransformPointer scale_by_rate(double rate, const Schedule& schedule) {
  return std::make_shared<ScaleByRate>(rate, schedule);
}

OuterOptimizer::OuterOptimizer(std::vector<OuterTransformPointer> transforms,
                               std::vector<Projection> projections)
    : transforms_(std::move(transforms)), projections_(std::move(projections)) {
  for (const auto& transform : transforms_) {
    if (!transform) throw std::invalid_argument("OuterOptimizer: a transform of the chain is null");
  }
}

OuterState OuterOptimizer::init(const Tensor& x) const {
  if (!x.defined() || !at::isFloatingType(x.scalar_type())) {
    throw std::invalid_argument(
        fmt::format("OuterOptimizer::init: x must be of a floating type, got {}", describe(x)));
  }
  OuterState state;
  for (const auto& transform : transforms_) state.transforms.push_back(transform->init(x.detach()));
  return state;
}

Tensor OuterOptimizer::step(const Tensor& x, const Tensor& hypergradient, OuterState& state,
                            FiniteChecks* asked) const {
  FiniteChecks at_once;
  FiniteChecks& checks = asked != nullptr ? *asked : at_once;
  if (!alike(x, hypergradient)) {
    throw std::invalid_argument(
        fmt::format("OuterOptimizer::step: the hypergradient must be like x, {}, got {}", describe(x),
                    describe(hypergradient)));
  }
  if (state.transforms.size() != transforms_.size() || state.step < 0) {
    throw std::invalid_argument(
        fmt::format("OuterOptimizer::step: the state is of {} transforms at step {}, the chain has {}; begin "
                    "with init(x), or resume with the optimiser that wrote the checkpoint",
                    state.transforms.size(), state.step, transforms_.size()));
  }
  Tensor direction = hypergradient.detach();
  const Tensor now = x.detach();
  require_finite_hypergradient(direction, state.step, checks);

  OuterState after = state;
  for (size_t i = 0; i < transforms_.size(); ++i) {
    direction = transforms_[i]->update(direction, now, state.step, after.transforms[i]);
  }
  Tensor next = now - direction;
  // Squares that overflow make Adam divide by infinity, now and ever after: x would stand still without a
  // word.
  if (!finite_after(next, after, checks)) {
    throw NotFiniteError(
        fmt::format("outer step {}: the hypergradient is finite (largest entry {:.3g}) but x after the step, "
                    "or what the optimiser "
                    "remembers, is not; x is left as it was. Lower the outer rate.",
                    state.step, hypergradient.abs().max().item<double>()));
  }
  for (const Projection& project : projections_) next = project(next);
  ++after.step;
  state = std::move(after);
  return next;
}

void OuterPreparation::validate() const {
  require_nonnegative("outer_clip_norm", clip_norm);
  require_nonnegative("outer_clip_value", clip_value);
  require_nonnegative("outer_weight_decay", weight_decay);
}

void OuterSgdOptions::validate() const {
  require_positive("outer_rate", rate);
  require_below_one("outer_momentum", momentum);
  schedule.validate();
  preparation.validate();
}

void OuterAdamOptions::validate() const {
  require_positive("outer_rate", rate);
  require_below_one("outer_beta1", beta1);
  require_below_one("outer_beta2", beta2);
  require_positive("outer_epsilon", epsilon);
  schedule.validate();
  preparation.validate();
}

OuterOptimizer make_outer_sgd(const OuterSgdOptions& options, std::vector<Projection> projections) {
  options.validate();
  std::vector<OuterTransformPointer> chain = prepared(options.preparation);
  if (options.momentum > 0) chain.push_back(heavy_ball(options.momentum));
  chain.push_back(scale_by_rate(options.rate, options.schedule));
  return OuterOptimizer(std::move(chain), std::move(projections));
}

OuterOptimizer make_outer_adam(const OuterAdamOptions& options, std::vector<Projection> projections) {
  options.validate();
  std::vector<OuterTransformPointer> chain = prepared(options.preparation);
  chain.push_back(scale_by_adam(options.beta1, options.beta2, options.epsilon));
  chain.push_back(scale_by_rate(options.rate, options.schedule));
  return OuterOptimizer(std::move(chain), std::move(projections));
}

const std::vector<std::string>& outer_optimizer_names() {
  static const std::vector<std::string> names = {"sgd", "adam"};
  return names;
}

OuterOptimizer make_outer_optimizer(const OuterOptions& o, std::vector<Projection> projections) {
  if (o.optimizer == "sgd") {
    return make_outer_sgd(
        {.rate = o.rate, .momentum = o.momentum, .schedule = o.schedule, .preparation = o.preparation},
        std::move(projections));
  }
  if (o.optimizer == "adam") {
    return make_outer_adam({.rate = o.rate,
                            .beta1 = o.beta1,
                            .beta2 = o.beta2,
                            .epsilon = o.epsilon,
                            .schedule = o.schedule,
                            .preparation = o.preparation},
                           std::move(projections));
  }
  refuse_unknown("outer optimizer", o.optimizer, outer_optimizer_names());
}

}  // namespace bilevel
