#pragma once
// AID-CG: the linear system by conjugate gradients. With as many steps as unknowns it is exact; on an
// indefinite curvature it stops and says so (use minres, damping or gauss-newton there).

#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct KrylovOptions {
  int64_t steps = 10;             // 0 is legal: the estimate is then df/dx
  double relative_tolerance = 0;  // 0 = all the steps
  CurvatureOptions curvature;
  void validate() const;
  static const Fields<KrylovOptions>& fields();
};

class ConjugateGradientEstimator : public HypergradientEstimator {
 public:
  explicit ConjugateGradientEstimator(KrylovOptions options = {});
  std::string_view name() const override { return "cg"; }
  bool implicit() const override { return true; }
  std::optional<int64_t> terms() const override { return options_.steps; }
  bool needs_positive_curvature() const override { return true; }
  EstimatorTraits traits() const override { return {.approach = Approach::krylov}; }
  double theory(const TheoryInputs& inputs) const override;  // by Chebyshev's polynomials
  double contraction(const Spectrum& curvature, double inner_rate) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  KrylovOptions options_;
};

}  // namespace bilevel
