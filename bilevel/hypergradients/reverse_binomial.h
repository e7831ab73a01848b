#pragma once
// Reverse mode within a byte budget: as many iterates as fit, placed by the binomial schedule (Revolve), and
// the rest taken again. The same bits as reverse.

#include "bilevel/hypergradients/reverse.h"

namespace bilevel {

struct ReverseBinomialOptions {
  // For the stored states: iterates with the optimiser's buffers. 64 MB hold eight iterates of a million
  // doubles, with which a thousand steps cost about four more forward passes.
  int64_t byte_budget = 64'000'000;
  void validate() const;
  static const Fields<ReverseBinomialOptions>& fields();
};

class ReverseBinomial : public HypergradientEstimator {
 public:
  explicit ReverseBinomial(ReverseBinomialOptions options = {});
  std::string_view name() const override { return "reverse-binomial"; }
  bool implicit() const override { return false; }
  EstimatorTraits traits() const override { return {.approach = Approach::all_steps}; }
  std::optional<StepsCost> cost(const StepsAsked& inner) const override;
  // Throws std::invalid_argument where the budget does not hold one state.
  std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  int64_t slots(int64_t state_bytes) const;
  ReverseBinomialOptions options_;
};

}  // namespace bilevel
