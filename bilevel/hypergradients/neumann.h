#pragma once
// iDARTS's stochastic Neumann series (Eqs. 8, 44, 45; docs/mathematics.md, "What K counts") and stocBiO's:
// rate * C sum_{k=0..K} (I - rate H)^k df/dw. K counts Hessian products, so there are K + 1 summands.

#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct NeumannEstimatorOptions {
  int64_t terms = 10;  // K; 0 is legal
  double rate = 0;     // 0 = the inner loop's last rate; safe up to 1 / L
  CurvatureOptions curvature;
  void validate() const;
  static const Fields<NeumannEstimatorOptions>& fields();
};

class NeumannEstimator : public HypergradientEstimator {
 public:
  explicit NeumannEstimator(NeumannEstimatorOptions options = {});
  std::string_view name() const override { return "neumann"; }
  bool implicit() const override { return true; }
  std::optional<int64_t> terms() const override { return options_.terms; }
  EstimatorTraits traits() const override {
    return {.approach = Approach::series, .linear_rate = options_.rate};
  }
  double theory(const TheoryInputs& inputs) const override;  // iDARTS's Theorem 1
  double contraction(const Spectrum& curvature, double inner_rate) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  NeumannEstimatorOptions options_;
};

}  // namespace bilevel
