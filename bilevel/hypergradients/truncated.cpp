#include "bilevel/hypergradients/truncated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/core/require.h"
#include "bilevel/fields/fields.h"
#include "bilevel/hypergradients/one_step.h"

namespace bilevel {

void TruncatedOptions::validate() const {
  require_at_least("truncate", steps, 0);
  if (!(difference_step > 0) || !std::isfinite(difference_step)) {
    throw std::invalid_argument(
        fmt::format("difference_step = {}: must be finite and above 0", difference_step));
  }
}

const Fields<TruncatedOptions>& TruncatedOptions::fields() {
  static const Fields<TruncatedOptions> table = [] {
    using O = TruncatedOptions;
    Fields<O> f;
    f.add(
         "truncate", [](O & o) -> auto& { return o.steps; }, "K: number of last steps to keep")
        .in(at_least(0, bounds::within_step));
    f.add(
        "difference_cross", [](O & o) -> auto& { return o.difference_cross; },
        "use central differences in place of cross products, as DARTS does for its one");
    f.add(
         "difference_step", [](O & o) -> auto& { return o.difference_step; },
         "distance that w is moved for a difference")
        .in(above(0));
    return f;
  }();
  return table;
}

const Fields<OneStepOptions>& OneStepOptions::fields() {
  static const Fields<OneStepOptions> table = [] {
    using O = OneStepOptions;
    Fields<O> f;
    f.add(
        "difference_cross", [](O & o) -> auto& { return o.difference_cross; },
        "use a central difference in place of the cross product, as DARTS does");
    f.add(
         "difference_step", [](O & o) -> auto& { return o.difference_step; },
         "distance that w is moved for a difference")
        .in(above(0));
    return f;
  }();
  return table;
}

Truncated::Truncated(TruncatedOptions options) : options_(options) { options_.validate(); }

std::vector<int64_t> Truncated::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  std::vector<int64_t> last;
  for (int64_t t = std::max<int64_t>(steps - options_.steps, 0); t < steps; ++t) last.push_back(t);
  return last;
}

double Truncated::theory(const TheoryInputs& in) const {
  if (in.mu <= 0 || in.rate * in.smoothness > 1 + 1e-9 || !in.hessian) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (options_.steps >= in.steps) return 0;
  const double b_norm = in.rate * in.largest_cross_norm;
  return std::pow(1 - in.rate * in.mu, static_cast<double>(options_.steps)) / (in.rate * in.mu) * in.p_norm *
         b_norm;
}

std::optional<StepsCost> Truncated::cost(const StepsAsked& inner) const {
  return cost_of_reverse(inner, std::min(options_.steps, inner.steps), false);
}

Hypergradient Truncated::compute(Oracle& oracle, const HypergradientRequest& request) const {
  const int64_t steps = request.inner.steps();
  const int64_t first = std::max<int64_t>(steps - options_.steps, 0);
  int64_t bytes = 0;
  const auto last_steps = [&](const VisitStep& visit) {
    for (int64_t t = steps - 1; t >= first; --t) {
      const InnerState& before = kept_state(request.inner, t, name());
      bytes += before.bytes();
      visit(t, before);
    }
  };
  Hypergradient result = reverse_from(oracle, request, first, false, last_steps,
                                      options_.difference_cross ? options_.difference_step : 0);
  result.bytes_kept = bytes;
  return result;
}

}  // namespace bilevel
