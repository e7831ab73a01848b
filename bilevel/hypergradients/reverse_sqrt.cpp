#include "bilevel/hypergradients/reverse_sqrt.h"

#include <algorithm>

#include "bilevel/hypergradients/checkpoints.h"

namespace bilevel {

std::vector<int64_t> ReverseSqrt::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  return sqrt_checkpoints(steps);
}

std::optional<StepsCost> ReverseSqrt::cost(const StepsAsked& inner) const {
  StepsCost cost = cost_of_reverse(inner, inner.steps, true);
  const auto kept = static_cast<int64_t>(sqrt_checkpoints(inner.steps).size());
  cost.counts.inner_gradient += inner.steps - kept;
  cost.bytes = (kept + std::min(sqrt_segment(inner.steps), inner.steps) - 1) * inner.state_bytes;
  return cost;
}

Hypergradient ReverseSqrt::compute(Oracle& oracle, const HypergradientRequest& request) const {
  const Trajectory& inner = request.inner;
  const std::vector<int64_t> checkpoints = sqrt_checkpoints(inner.steps());
  int64_t segment_bytes = 0;
  Hypergradient result = reverse_from(oracle, request, 0, true, [&](const VisitStep& visit) {
    int64_t end = inner.steps();
    for (auto begin = checkpoints.rbegin(); begin != checkpoints.rend(); ++begin) {
      std::vector<InnerState> states = {kept_state(inner, *begin, name())};
      int64_t bytes = 0;
      for (int64_t t = *begin; t + 1 < end; ++t) {
        states.push_back(replay_step(oracle, request.x, inner, t, states.back()));
        bytes += states.back().bytes();
      }
      segment_bytes = std::max(segment_bytes, bytes);
      for (int64_t t = end - 1; t >= *begin; --t) {
        visit(t, states.back());
        states.pop_back();
      }
      end = *begin;
    }
  });
  result.bytes_kept = bytes_of(inner, checkpoints, name()) + segment_bytes;
  return result;
}

}  // namespace bilevel
