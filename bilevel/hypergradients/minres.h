#pragma once
// The linear system by MINRES, which stays meaningful where the curvature is indefinite: on networks.

#include "bilevel/hypergradients/cg.h"

namespace bilevel {

class MinresEstimator : public HypergradientEstimator {
 public:
  explicit MinresEstimator(KrylovOptions options = {});
  std::string_view name() const override { return "minres"; }
  bool implicit() const override { return true; }
  std::optional<int64_t> terms() const override { return options_.steps; }
  EstimatorTraits traits() const override {
    return {.approach = Approach::krylov, .negative_curvature = true};
  }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  KrylovOptions options_;
};

}  // namespace bilevel
