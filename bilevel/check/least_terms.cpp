#include "bilevel/check/least_terms.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bilevel/check/inner_plan.h"

namespace bilevel {
namespace {

constexpr int patience = 3;  // doublings without progress before it counts as a floor

}  // namespace

LeastTerms least_terms(const std::function<double(int64_t)>& error_at, const LeastTermsOptions& o,
                       const std::function<bool(int64_t)>& affordable) {
  LeastTerms best;
  best.error = std::numeric_limits<double>::infinity();
  int64_t below = o.first - 1;  // the largest that was too few
  int64_t k = std::min(o.first, o.most);
  best.terms = k;  // also where no error is a number
  double last = best.error;
  for (int stalled = 0;; k = std::min(2 * k, o.most)) {
    const double error = error_at(k);
    best.tried = k;
    stalled = error < 0.99 * last || k < o.patient_until ? 0 : stalled + 1;
    last = error;
    if (error < best.error) {
      best.error = error;
      best.terms = k;
    }
    if (error <= o.target) {
      best.reached = true;
      break;
    }
    below = k;
    if (k == o.most || stalled >= patience) return best;
    if (!affordable(std::min(2 * k, o.most))) {
      // What terms take away is not above last + floor, and must come below target - floor.
      const int64_t more = steps_to_shrink(o.contraction, (o.target - o.floor) / (last + o.floor));
      if (!(o.contraction < 1) || !(o.target > o.floor) || !std::isfinite(last) || more > o.most - k)
        return best;
      return {.terms = k + more, .error = o.target, .reached = true, .extrapolated = true, .tried = k};
    }
  }
  // To the last one while they are few, then to a sixteenth.
  int64_t enough = k;
  while (enough - below > std::max<int64_t>(1, enough / 16)) {
    const int64_t middle = below + (enough - below) / 2;
    if (!affordable(middle)) break;
    const double error = error_at(middle);
    if (error <= o.target) {
      enough = middle;
      best.terms = middle;
      best.error = error;
    } else {
      below = middle;
    }
  }
  best.terms = enough;
  return best;
}

}  // namespace bilevel
