#pragma once
// The implicit hypergradient itself, df/dx - C H^-1 df/dw at the final iterate: by a factorisation of the
// assembled curvature where it is small, by conjugate gradients to rounding where it is not.

#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct ExactOptions {
  CurvatureOptions curvature;
  int64_t direct_limit = 1000;  // assembling costs n products and n*n numbers
  double relative_tolerance =
      1e-12;  // of the conjugate gradients above the limit; never below the dtype's rounding
  void validate() const;
  static const Fields<ExactOptions>& fields();
};

class Exact : public HypergradientEstimator {
 public:
  explicit Exact(ExactOptions options = {});
  std::string_view name() const override { return "exact"; }
  bool implicit() const override { return true; }
  EstimatorTraits traits() const override {
    return {.approach = Approach::inverse, .negative_curvature = true};
  }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  ExactOptions options_;
};

}  // namespace bilevel
