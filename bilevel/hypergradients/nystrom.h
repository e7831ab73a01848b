#pragma once
// The inverse of a low-rank approximation (Hataya and Yamada 2023; in the stable form of Frangella, Tropp and
// Udell 2023): H ~ U L U' on `rank` random directions, so that H^-1 p ~ U (L + rho)^-1 U'p + (p - U U'p) /
// rho. Its cost is fixed, `rank` Hessian products, and none of them waits for another.

#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct NystromOptions {
  int64_t rank = 10;           // never more than n; at n and without damping it is exact
  uint64_t seed = 0;           // of the random directions
  CurvatureOptions curvature;  // its damping is the rho above; 0 = the smallest curvature that was found
  void validate() const;
  static const Fields<NystromOptions>& fields();
};

class NystromEstimator : public HypergradientEstimator {
 public:
  explicit NystromEstimator(NystromOptions options = {});
  std::string_view name() const override { return "nystrom"; }
  bool implicit() const override { return true; }
  std::optional<int64_t> terms() const override { return options_.rank; }
  EstimatorTraits traits() const override { return {.approach = Approach::low_rank}; }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override;
  NystromOptions options_;
};

}  // namespace bilevel
