#pragma once
// BOME (Liu, Ye, Wu, Stone and Liu 2022, Algorithm 1): first derivatives only. How far w is from solved is
// measured by q(x, w) = g(x, w) - g(x, w_T), with w_T reached by T gradient steps from w and then held fixed:
//
//     grad_w q = grad_w g(x, w),    grad_x q = grad_x g(x, w) - grad_x g(x, w_T)
//     (w, x) <- (w, x) - xi (grad f + lambda grad q)
//     lambda = max(0, (phi - <grad f, grad q>) / |grad q|^2),    phi = barrier |grad q|^2
//
// the step closest to grad f that lowers q at the speed phi. lambda grows without bound as w is solved, and
// the step of w is stable only while xi lambda L_g < 2: with a constant xi, x stops at a distance of the
// order of xi from the best one, and a schedule that falls takes it there.
// The paper has one xi for w and x. Where w has its own rate, x counts in the products above with the ratio
// of the two rates: that is the paper's rule in the variable x sqrt(joint_rate / rate).
// w is trained on f, and so are the T steps that begin there: neither is the inner solution. A record solves
// the inner problem afresh, on the full set from the first w, by L-BFGS.
// The gradients of q share one sample of g. An iteration costs T + 3 inner gradients and one outer.

#include <cstdint>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"

namespace bilevel {

struct BomeOptions {
  int64_t inner_steps = 10;  // T; the paper's
  double inner_rate = 0.1;   // of the T steps
  double joint_rate = 0;     // of w in the joint step; 0 = the outer rate. Falls with the outer schedule
  double barrier = 0.5;      // the paper's eta: q falls like exp(-barrier time); the paper's value
  OuterOptions outer = {};
  void validate() const;
  static const Fields<BomeOptions>& fields();
};

class Bome : public Algorithm {
 public:
  explicit Bome(const BomeOptions& options);
  std::string_view name() const override { return "bome"; }
  InnerSolution inner_solution(Oracle& oracle, const AlgorithmState& state) const override;

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  BomeOptions options_;
};

}  // namespace bilevel
