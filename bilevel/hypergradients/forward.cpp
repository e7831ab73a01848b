#include "bilevel/hypergradients/forward.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace bilevel {
namespace {

// The sensitivity to one entry of x: unit vector, state tangent, tangent of the learned rate.
struct Sensitivity {
  Tensor unit;
  InnerState state;
  Tensor base_rate;
  bool is_zero = true;  // true until the first step where the start is not learned: saves its Hessian product
};

std::vector<Sensitivity> initial_sensitivities(const Oracle& oracle, const HypergradientRequest& request) {
  const Tensor identity = at::eye(request.x.numel(), request.x.options());
  const bool learned_rate = request.inner.learned_rate.defined();
  std::vector<Sensitivity> all;
  for (int64_t i = 0; i < request.x.numel(); ++i) {
    Sensitivity one;
    one.unit = identity[i];
    one.is_zero = !request.inner.start_is_learned;
    one.state = request.inner.optimizer->start(one.is_zero ? at::zeros_like(request.inner.final.w)
                                                           : oracle.start_tangent(request.x, one.unit));
    if (learned_rate) one.base_rate = oracle.rate_tangent(request.x, one.unit);
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

std::vector<int64_t> Forward::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  return steps > 0 ? std::vector<int64_t>{0} : std::vector<int64_t>{};
}

std::optional<StepsCost> Forward::cost(const StepsAsked& inner) const {
  const int64_t steps = inner.steps, m = inner.outer_size;
  StepsCost cost;
  cost.counts.outer_gradient = 1;
  cost.counts.inner_gradient = steps;
  cost.counts.hessian = m * (inner.learned_start ? steps : std::max<int64_t>(steps - 1, 0));
  cost.counts.cross = inner.uses_outer ? m * steps : 0;
  cost.bytes = (1 + m) * inner.state_bytes;
  return cost;
}

Hypergradient Forward::compute(Oracle& oracle, const HypergradientRequest& request) const {
  const Trajectory& inner = request.inner;
  const bool through_x = oracle.problem().inner_loss_uses_outer();
  std::vector<Sensitivity> sensitivities = initial_sensitivities(oracle, request);

  if (inner.steps() > 0) {
    InnerState state = kept_state(inner, 0, name());
    for (int64_t t = 0; t < inner.steps(); ++t) {
      const auto linear = oracle.linearize(state.w, request.x, inner.batches[static_cast<size_t>(t)]);
      const Tensor gradient = linear->gradient();
      const StepRate rate = inner.rate(state);
      const double factor = inner.options.schedule.factor(state.step);
      for (Sensitivity& one : sensitivities) {
        Tensor gradient_tangent = through_x ? linear->cross_transposed(one.unit) : at::zeros_like(state.w);
        if (!one.is_zero) gradient_tangent = gradient_tangent + linear->hessian(one.state.w);
        const Tensor rate_tangent = one.base_rate.defined() ? one.base_rate * factor : Tensor();
        one.state =
            inner.optimizer->tangent(state, gradient, rate, one.state, gradient_tangent, rate_tangent);
        one.is_zero = false;
      }
      state = inner.optimizer->step(state, gradient, rate);
    }
  }

  const auto outer = oracle.outer_gradients(inner.final.w, request.x, request.outer);
  std::vector<Tensor> components;
  int64_t bytes = bytes_of(inner, keeps(inner.steps(), 0), name());
  for (const Sensitivity& one : sensitivities) {
    components.push_back(one.state.w.dot(outer.w));
    bytes += one.state.bytes();
  }
  Hypergradient result = estimate_from(outer);
  result.value = outer.x + at::stack(components);
  result.status = Status::ok;
  result.bytes_kept = bytes;
  return result;
}

}  // namespace bilevel
