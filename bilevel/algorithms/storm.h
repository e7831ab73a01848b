#pragma once
// What FSLA and the single loops it is compared with share (Li, Gu and Huang 2022, Algorithm 1 and section
// 6): one step of x along a variance-reduced momentum d, one inner step, a new v, and then STORM's momentum
// (Cutkosky and Orabona 2019),
//
//     x_{k+1} = x_k - alpha_k d_k,    w_{k+1} = w_k - tau_k grad_w g(x_{k+1}, w_k),
//     d_{k+1} = h_{k+1} + (1 - eta_k) (d_k - h_k),    h_j = grad_x f(x_j, w_j) - C(x_j, w_j) v_j,
//
// h_{k+1} and h_k on one new sample: h_k is the old point with the old v, seen through the new sample. d_0 is
// the first stochastic gradient: with v_0 = 0 that is grad_x f, and rightly zero where f has no x in it.

#include <string_view>

#include "bilevel/algorithms/algorithm.h"

namespace bilevel {

struct StormOptions {
  double inner_rate = 0.1;      // tau_0
  double momentum_decay = 0.9;  // eta_0, in (0, 1]: how much of d is forgotten in a step; 0.9 as in the paper
  // Of alpha (where the outer optimiser is sgd; adam keeps its own), tau, eta and FSLA's beta together: their
  // ratios stay. The paper's 1 / sqrt(k+1) is what the rate of Theorem 5 needs.
  Schedule schedule = {.kind = ScheduleKind::inverse_sqrt};
  OuterOptions outer = {};  // alpha_0; sgd's schedule is the one above
  void validate(std::string_view algorithm) const;
  static const Fields<StormOptions>& fields();
};

class StormLoop : public Algorithm {
 public:
  // w_{k+1} steps at x_{k+1}.
  InnerSolution inner_solution(Oracle& /*oracle*/, const AlgorithmState& state) const override {
    return {.w = state.inner.w, .x = state.x};
  }

 protected:
  StormLoop(const StormOptions& options, std::string_view algorithm);  // the name is for messages alone

  // Where a new v is asked for: x has moved, and w too.
  struct LinearPoint {
    Tensor x;              // x_{k+1}
    Tensor before, after;  // w_k, w_{k+1}
    Tensor v;              // v_k
    double factor;         // of the schedule
  };

 private:
  // v_{k+1}, on the samples of the outer stream "linear" and of the inner stream "hessian".
  virtual LinearResult next_v(Oracle& oracle, const LinearPoint& at, Streams& streams) const = 0;
  virtual bool needs_positive() const { return false; }  // of the solve, as in IterationSummary
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  StormOptions options_;
};

// d_{k+1}
Tensor storm_momentum(const Tensor& momentum, const Tensor& newer, const Tensor& older, double decay);

}  // namespace bilevel
