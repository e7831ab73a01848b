#pragma once
// K-RMD: reverse mode over the last K steps only (Eq. 8; docs/mathematics.md, "Estimators"). K - 1 Hessian
// and K cross products, K * n numbers kept; its bias falls like (1 - rate mu)^K where the inner problem is
// strongly convex (Proposition 3.1).

#include "bilevel/hypergradients/reverse.h"

namespace bilevel {

struct TruncatedOptions {
  int64_t steps = 10;  // K; more than T means T; 0 is legal and returns df/dx
  // Cross products by central differences along the adjoint, as DARTS takes its one; CurvatureOptions has the
  // same two for the implicit estimators.
  bool difference_cross = false;
  double difference_step = 0.01;
  void validate() const;
  static const Fields<TruncatedOptions>& fields();
};

class Truncated : public HypergradientEstimator {
 public:
  explicit Truncated(TruncatedOptions options = {});
  std::string_view name() const override { return "truncated"; }
  bool implicit() const override { return false; }
  std::optional<int64_t> terms() const override { return options_.steps; }
  EstimatorTraits traits() const override { return {.approach = Approach::last_steps}; }
  double theory(const TheoryInputs& inputs) const override;  // K-RMD's Proposition 3.1
  std::optional<StepsCost> cost(const StepsAsked& inner) const override;
  std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const override;

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  TruncatedOptions options_;
};

}  // namespace bilevel
