#pragma once
// AID-FP: v <- v - rate (H v - df/dw). From zero, S steps are neumann(S - 1); its use is the warm start.

#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct FixedPointEstimatorOptions {
  int64_t steps = 10;
  double rate = 0;                // 0 = the inner loop's last rate
  double relative_tolerance = 0;  // 0 = all the steps
  CurvatureOptions curvature;
  void validate() const;
  static const Fields<FixedPointEstimatorOptions>& fields();
};

class FixedPointEstimator : public HypergradientEstimator {
 public:
  explicit FixedPointEstimator(FixedPointEstimatorOptions options = {});
  std::string_view name() const override { return "fixed-point"; }
  bool implicit() const override { return true; }
  std::optional<int64_t> terms() const override { return options_.steps; }
  bool needs_positive_curvature() const override { return true; }
  EstimatorTraits traits() const override {
    return {.approach = Approach::series, .linear_rate = options_.rate};
  }
  double theory(const TheoryInputs& inputs) const override;  // that of neumann(S - 1)
  double contraction(const Spectrum& curvature, double inner_rate) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  FixedPointEstimatorOptions options_;
};

}  // namespace bilevel
