#pragma once
// FSLA, the fully single loop algorithm (Li, Gu and Huang 2022, Algorithm 1; docs/mathematics.md,
// "Algorithms"): v follows H^-1 grad_w f by one
// step of its own an iteration, beside those of x and w (storm.h):
//
//     v_{k+1} = v_k - beta_k (H v_k - grad_w f)    at x_{k+1} and w_k, v_0 = 0
//
// With delta = rate of the outer optimiser, c_tau delta = inner_rate, c_beta delta = linear_rate and c_eta
// delta = momentum_decay. Five independent samples an iteration: the streams steps, linear, hessian, loss and
// cross are the paper's xi_1 to xi_5.

#include <string>
#include <string_view>

#include "bilevel/algorithms/storm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct FslaOptions {
  StormOptions storm = {};
  double linear_rate = 0;  // beta_0; 0 = the inner rate: both contract with H
  // Line 7 evaluates at the w before the inner step; Eq. 10 prints the one after it.
  std::string v_at = "before";
  CurvatureOptions curvature = {};
  void validate() const;
  static const Fields<FslaOptions>& fields();
};

class Fsla : public StormLoop {
 public:
  explicit Fsla(const FslaOptions& options);
  std::string_view name() const override { return "fsla"; }

 private:
  LinearResult next_v(Oracle& oracle, const LinearPoint& at, Streams& streams) const override;

  FslaOptions options_;
};

}  // namespace bilevel
