#include "bilevel/hypergradients/reverse_binomial.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/hypergradients/checkpoints.h"

namespace bilevel {
namespace {

// Reverses steps begin .. end-1 from the stored state at `begin`, with `slots` stored states in all.
class BinomialSweep {
 public:
  BinomialSweep(Oracle& oracle, const HypergradientRequest& request, const VisitStep& visit)
      : oracle_(oracle), request_(request), visit_(visit) {}

  void reverse(int64_t begin, int64_t end, int64_t slots, const InnerState& state) {
    if (end - begin <= 0) return;
    if (end - begin == 1) return visit_(begin, state);
    if (slots == 1) {
      for (int64_t t = end - 1; t >= begin; --t) visit_(t, advance(begin, t, state));
      return;
    }
    const int64_t middle = begin + binomial_split(end - begin, slots);
    auto& kept = request_.inner.kept;
    if (const auto found = kept.find(middle); found != kept.end()) {
      reverse(middle, end, slots - 1, found->second);
      kept.erase(middle);  // its slot is needed for the steps before it
    } else {
      const InnerState recomputed = advance(begin, middle, state);
      recomputed_bytes_ += recomputed.bytes();
      peak_bytes_ = std::max(peak_bytes_, recomputed_bytes_ + request_.inner.bytes_kept());
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
  int64_t recomputed_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace

void ReverseBinomialOptions::validate() const {
  if (byte_budget < 1) {
    throw std::invalid_argument(fmt::format("byte_budget = {}: must be at least 1", byte_budget));
  }
}

ReverseBinomial::ReverseBinomial(ReverseBinomialOptions options) : options_(options) { options_.validate(); }

int64_t ReverseBinomial::slots(int64_t state_bytes) const {
  if (state_bytes < 1) {
    throw std::invalid_argument(fmt::format("state_bytes = {}: must be at least 1", state_bytes));
  }
  const int64_t slots = options_.byte_budget / state_bytes;
  if (slots < 1) {
    throw std::invalid_argument(
        fmt::format("byte_budget = {}: does not hold one inner state of {} bytes; give at least that, or use "
                    "truncated or neumann",
                    options_.byte_budget, state_bytes));
  }
  return slots;
}

std::vector<int64_t> ReverseBinomial::keeps(int64_t steps, int64_t state_bytes) const {
  return binomial_checkpoints(steps, slots(state_bytes));
}

Hypergradient ReverseBinomial::compute(Oracle& oracle, const HypergradientRequest& request) const {
  Trajectory& inner = request.inner;
  int64_t peak_bytes = inner.bytes_kept();
  Hypergradient result = reverse_from(oracle, request, 0, true, [&](const VisitStep& visit) {
    if (inner.steps() == 0) return;
    BinomialSweep sweep(oracle, request, visit);
    sweep.reverse(0, inner.steps(), slots(inner.final.bytes()), kept_state(inner, 0, name()));
    peak_bytes = std::max(peak_bytes, sweep.peak_bytes());
  });
  result.bytes_kept = peak_bytes;
  return result;
}

}  // namespace bilevel
