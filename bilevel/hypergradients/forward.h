#pragma once
// Forward mode (FMD, K-RMD Eq. 7; docs/mathematics.md, "Inner steps and their derivatives"): the sensitivity
// of the state to every entry of x, carried along the steps. T * m Hessian and transposed cross products and
// m * n numbers: for few outer variables, and as a check on reverse mode, with which it shares no recursion.

#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

class Forward : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "forward"; }
  bool implicit() const override { return false; }
  EstimatorTraits traits() const override {
    return {.approach = Approach::all_steps, .per_outer_variable = true};
  }
  std::optional<StepsCost> cost(const StepsAsked& inner) const override;
  // The start alone: the steps are taken again, T inner gradients, because the sensitivities travel with
  // them.
  std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
};

}  // namespace bilevel
