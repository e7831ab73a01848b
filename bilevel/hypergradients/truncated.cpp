#include "bilevel/hypergradients/truncated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bilevel/core/require.h"

namespace bilevel {

void TruncatedOptions::validate() const {
  require_at_least("truncate", steps, 0);
  if (!(difference_step > 0) || !std::isfinite(difference_step)) {
    throw std::invalid_argument(
        fmt::format("difference_step = {}: must be finite and above 0", difference_step));
  }
}

Truncated::Truncated(TruncatedOptions options) : options_(options) { options_.validate(); }

std::vector<int64_t> Truncated::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  std::vector<int64_t> last;
  for (int64_t t = std::max<int64_t>(steps - options_.steps, 0); t < steps; ++t) last.push_back(t);
  return last;
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
