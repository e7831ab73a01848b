#include "bilevel/hypergradients/reverse_binomial.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "bilevel/core/require.h"
#include "bilevel/fields/fields.h"
#include "bilevel/hypergradients/checkpoints.h"

namespace bilevel {
namespace {

// Reverses steps begin .. end-1 from the stored state at `begin`, with `slots` stored states in all. Of the
// trajectory's states it reads only the schedule's own, each until it has been reversed from.
class BinomialSweep {
 public:
  BinomialSweep(Oracle& oracle, const HypergradientRequest& request, const std::vector<int64_t>& schedule,
                const VisitStep& visit)
      : oracle_(oracle), request_(request), visit_(visit) {
    for (const int64_t t : schedule) {
      if (const auto found = request.inner.kept.find(t); found != request.inner.kept.end()) {
        stored_.insert(t);
        stored_bytes_ += found->second.bytes();
      }
    }
    peak_bytes_ = stored_bytes_;
  }

  void reverse(int64_t begin, int64_t end, int64_t slots, const InnerState& state) {
    if (end - begin <= 0) return;
    if (end - begin == 1) return visit_(begin, state);
    if (slots == 1) {
      for (int64_t t = end - 1; t >= begin; --t) visit_(t, advance(begin, t, state));
      return;
    }
    const int64_t middle = begin + binomial_split(end - begin, slots);
    if (stored_.contains(middle)) {
      const InnerState& kept = request_.inner.kept.at(middle);
      reverse(middle, end, slots - 1, kept);
      stored_.erase(middle);  // its slot is needed for the steps before it
      stored_bytes_ -= kept.bytes();
      if (request_.release) request_.release(middle);
    } else {
      const InnerState recomputed = advance(begin, middle, state);
      recomputed_bytes_ += recomputed.bytes();
      peak_bytes_ = std::max(peak_bytes_, recomputed_bytes_ + stored_bytes_);
      reverse(middle, end, slots - 1, recomputed);
      recomputed_bytes_ -= recomputed.bytes();
    }
    reverse(begin, middle, slots, state);
  }

  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  InnerState advance(int64_t from, int64_t to, InnerState state) {
    for (int64_t t = from; t < to; ++t) state = replay_step(oracle_, request_.x, request_.inner, t, state);
    return state;
  }

  Oracle& oracle_;
  const HypergradientRequest& request_;
  const VisitStep& visit_;
  std::set<int64_t> stored_;
  int64_t stored_bytes_ = 0, recomputed_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace

void ReverseBinomialOptions::validate() const { require_at_least("byte_budget", byte_budget, 1); }

ReverseBinomial::ReverseBinomial(ReverseBinomialOptions options) : options_(options) { options_.validate(); }

int64_t ReverseBinomial::slots(int64_t state_bytes) const {
  require_at_least("state_bytes", state_bytes, 1);
  const int64_t slots = options_.byte_budget / state_bytes;
  if (slots < 1) {
    throw std::invalid_argument(
        fmt::format("byte_budget = {}: does not hold one inner state of {} bytes; give at least that, or use "
                    "truncated or neumann",
                    options_.byte_budget, state_bytes));
  }
  return slots;
}

const Fields<ReverseBinomialOptions>& ReverseBinomialOptions::fields() {
  static const Fields<ReverseBinomialOptions> table = [] {
    using O = ReverseBinomialOptions;
    Fields<O> f;
    f.add(
         "byte_budget", [](O & o) -> auto& { return o.byte_budget; },
         "memory for the kept iterates, in bytes")
        .in(at_least(1));
    return f;
  }();
  return table;
}

std::vector<int64_t> ReverseBinomial::keeps(int64_t steps, int64_t state_bytes) const {
  return binomial_checkpoints(steps, slots(state_bytes));
}

std::optional<StepsCost> ReverseBinomial::cost(const StepsAsked& inner) const {
  StepsCost cost = cost_of_reverse(inner, inner.steps, true);
  const int64_t stored = slots(inner.state_bytes);
  cost.counts.inner_gradient += binomial_recomputed(inner.steps, stored);
  cost.bytes = std::min(stored, inner.steps) * inner.state_bytes;
  return cost;
}

Hypergradient ReverseBinomial::compute(Oracle& oracle, const HypergradientRequest& request) const {
  const Trajectory& inner = request.inner;
  int64_t peak_bytes = 0;
  Hypergradient result = reverse_from(oracle, request, 0, true, [&](const VisitStep& visit) {
    if (inner.steps() == 0) return;
    const int64_t state_bytes = inner.final.bytes();
    BinomialSweep sweep(oracle, request, keeps(inner.steps(), state_bytes), visit);
    sweep.reverse(0, inner.steps(), slots(state_bytes), kept_state(inner, 0, name()));
    peak_bytes = sweep.peak_bytes();
  });
  result.bytes_kept = peak_bytes;
  return result;
}

}  // namespace bilevel
