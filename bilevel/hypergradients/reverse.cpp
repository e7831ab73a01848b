#include "bilevel/hypergradients/reverse.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace bilevel {

std::vector<int64_t> Reverse::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  std::vector<int64_t> all(static_cast<size_t>(steps));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::optional<StepsCost> Reverse::cost(const StepsAsked& inner) const {
  return cost_of_reverse(inner, inner.steps, true);
}

Hypergradient Reverse::compute(Oracle& oracle, const HypergradientRequest& request) const {
  Hypergradient result = reverse_from(oracle, request, 0, true, [&](const VisitStep& visit) {
    for (int64_t t = request.inner.steps() - 1; t >= 0; --t) visit(t, kept_state(request.inner, t, name()));
  });
  result.bytes_kept = bytes_of(request.inner, keeps(request.inner.steps(), 0), name());
  return result;
}

Hypergradient reverse_from(Oracle& oracle, const HypergradientRequest& request, int64_t first,
                           bool through_start, const std::function<void(const VisitStep& visit)>& sweep_steps,
                           double difference_step) {
  const Trajectory& inner = request.inner;
  const auto outer = oracle.outer_gradients(inner.final.w, request.x, request.outer);
  ReverseSweep sweep = begin_reverse(inner, outer.w, outer.x);
  sweep.difference_step = difference_step;
  if (request.with_bound) sweep.gathered = at::zeros_like(outer.w);
  through_start = through_start && inner.start_is_learned;
  sweep_steps([&](int64_t t, const InnerState& before) {
    reverse_step(oracle, request.x, inner, t, before, t > first || through_start, sweep);
  });
  Hypergradient result = estimate_from(outer);
  result.value = end_reverse(oracle, request.x, inner, through_start, sweep);
  result.status = Status::ok;
  result.gathered = sweep.gathered;
  return result;
}

StepsCost cost_of_reverse(const StepsAsked& inner, int64_t steps, bool through_start) {
  StepsCost cost;
  cost.counts.outer_gradient = 1;
  cost.counts.inner_gradient = inner.adjoint_needs_gradient ? steps : 0;
  cost.counts.hessian = through_start && inner.learned_start ? steps : std::max<int64_t>(steps - 1, 0);
  cost.counts.cross = inner.uses_outer ? steps : 0;
  cost.bytes = steps * inner.state_bytes;
  return cost;
}

}  // namespace bilevel
