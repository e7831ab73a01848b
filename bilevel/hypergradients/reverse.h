#pragma once
// Reverse mode (RMD, back-propagation through time, ITD): the derivative of f after the T steps that were
// really taken, by an explicit recursion over the kept iterates (K-RMD Eq. 6; docs/mathematics.md, "Inner
// steps and their derivatives"). T - 1 Hessian and T cross products, T * n numbers kept.

#include <functional>

#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

class Reverse : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "reverse"; }
  bool implicit() const override { return false; }
  EstimatorTraits traits() const override { return {.approach = Approach::all_steps}; }
  std::optional<StepsCost> cost(const StepsAsked& inner) const override;
  std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
};

// The recursion from the last step down to `first`, for every estimator of this family. `sweep_steps` calls
// `visit` once for each step t = T-1 .. first, with the state before it; how it comes by that state is its
// business. `through_start` adds the term B_0 a_0 where the starting point belongs to x. A positive
// `difference_step` takes the cross products by central differences (ReverseSweep::difference_step).
using VisitStep = std::function<void(int64_t t, const InnerState& before)>;
Hypergradient reverse_from(Oracle& oracle, const HypergradientRequest& request, int64_t first,
                           bool through_start, const std::function<void(const VisitStep& visit)>& sweep_steps,
                           double difference_step = 0);

// What the recursion costs over the last `steps` steps, where their states are kept.
StepsCost cost_of_reverse(const StepsAsked& inner, int64_t steps, bool through_start);

}  // namespace bilevel
