#pragma once
// First-order MAML (Finn, Abbeel and Levine 2017, section 5.2): the inner steps are taken as if they did not
// depend on where they began, so that df/dw at their end is the derivative at their start. No second
// derivatives.

#include <string_view>

#include "bilevel/hypergradients/estimator.h"

namespace bilevel::meta {

class FirstOrder : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "first-order"; }
  bool implicit() const override { return false; }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
};

}  // namespace bilevel::meta
