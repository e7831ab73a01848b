#pragma once
// Reverse mode that keeps every sqrt(T)-th iterate and takes the steps between them again, segment by
// segment: the same bits as reverse, O(sqrt(T)) * n numbers, at most one more forward pass.

#include "bilevel/hypergradients/reverse.h"

namespace bilevel {

class ReverseSqrt : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "reverse-sqrt"; }
  bool implicit() const override { return false; }
  EstimatorTraits traits() const override { return {.approach = Approach::all_steps}; }
  std::optional<StepsCost> cost(const StepsAsked& inner) const override;
  std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
};

}  // namespace bilevel
