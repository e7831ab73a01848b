#pragma once
// T1-T2 (Luketina et al. 2016): the inverse Hessian replaced by the identity, df/dx - C df/dw.

#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

class T1T2 : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "t1t2"; }
  bool implicit() const override { return true; }
  EstimatorTraits traits() const override { return {.approach = Approach::identity}; }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
};

}  // namespace bilevel
