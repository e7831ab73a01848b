#pragma once
// F2SA (Kwon, Kwon, Wright and Nowak 2023, Algorithm 1): first derivatives only. The inner problem is a
// penalty, L = f + lambda (g - min_w g), and two inner variables follow its two parts for T steps each:
//
//     z <- z - inner_rate grad_w g(x, z)                                   towards w*(x)
//     w <- w - inner_rate / (1 + lambda) (grad_w f + lambda grad_w g)      towards argmin_w f + lambda g
//     x <- x - rate (grad_x f(x, w) + lambda (grad_x g(x, w) - grad_x g(x, z)))
//     lambda_k = penalty (k + 1)^growth
//
// Where w and z are solved, the direction differs from the hypergradient by O(1 / lambda) (Lemma 3.1): x goes
// to a point that is off by as much, and lambda must grow for x to go to the right one. The paper grows it
// like k^(1/7) where both levels are noisy, k^(1/5) where only f is, k^(1/3) where neither is.
// 1 + lambda in w's rate: f is taken to curve at most as g does; a lambda much above 1 makes it true.
// The paper draws the samples of g at w and at z apart; here they share one. w and z are O(1 / lambda) apart,
// so lambda times the difference then has a bounded variance, where independent samples have lambda^2 times
// it.
// state.inner.w is the w above, memory holds z. w is trained on f, the more the smaller lambda is; z is the
// inner solution, and what a result gives. An iteration costs 2 T + 2 inner and T + 1 outer gradients.

#include <cstdint>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"

namespace bilevel {

struct F2saOptions {
  int64_t inner_steps = 10;  // T
  double inner_rate = 0.1;   // of z; that of w follows from it
  Schedule schedule = {};    // of both, by the inner steps taken so far
  double penalty = 10;       // lambda at the start; the paper asks for 2 L_f / mu_g, which is not known
  double growth = 1.0 / 7;   // of lambda; the paper's exponent for two noisy levels
  OuterOptions outer = {};
  void validate() const;
  static const Fields<F2saOptions>& fields();
};

class F2sa : public Algorithm {
 public:
  explicit F2sa(const F2saOptions& options);
  std::string_view name() const override { return "f2sa"; }
  double penalty(int64_t iteration) const;  // lambda_k, k from 0
  InnerSolution inner_solution(Oracle& oracle, const AlgorithmState& state) const override;  // z

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  F2saOptions options_;
};

}  // namespace bilevel
