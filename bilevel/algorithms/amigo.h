#pragma once
// AmIGO (Arbel and Mairal 2022, Algorithm 1): T stochastic steps on w and K on the linear system, both from
// where the last iteration left them, then one on x. A warm start is all it takes to reach the rates of an
// exact inner solve.
//
//     T times  w <- w - inner_rate grad_w g,          a new batch each (or another optimiser's step)
//     K times  v <- v - linear_rate (H v - p),        a new batch of H each, p = grad_w f on one batch
//     x <- x - rate (grad_x f - C v),                 grad_x f on p's batch, C on its own

#include <cstdint>
#include <memory>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct AmigoOptions {
  InnerOptions inner = {.steps = 10};  // T; T and K of about ten are the paper's experiments'
  int64_t linear_steps = 10;           // K
  double linear_rate = 0;              // of v; 0 = the inner rate: both contract with H
  Schedule linear_schedule = {};       // by iterations: one factor for the K steps
  OuterOptions outer = {};
  CurvatureOptions curvature = {};
  void validate() const;
  static const Fields<AmigoOptions>& fields();
};

class Amigo : public Algorithm {
 public:
  explicit Amigo(const AmigoOptions& options);
  std::string_view name() const override { return "amigo"; }

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  AmigoOptions options_;
  std::unique_ptr<const InnerOptimizer> optimizer_;
};

}  // namespace bilevel
