#include "bilevel/hypergradients/reverse.h"

#include <ATen/ATen.h>

#include <numeric>

namespace bilevel {

std::vector<int64_t> Reverse::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  std::vector<int64_t> all(static_cast<size_t>(steps));
  std::iota(all.begin(), all.end(), 0);
  return all;
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

}  // namespace bilevel
