#pragma once
// DARTS (Liu, Simonyan and Yang 2019, Algorithm 1; docs/mathematics.md, "Algorithms"): x and w in turn, one
// step each, on the same training batch.
//
//     w' = one step of the inner optimiser from w at x                        (virtual: looked at, not kept)
//     x <- x - rate (df/dx(w', x) - C(w, x) dw'/d(gradient) df/dw(w', x))     (their Eq. 7)
//     w <- one step of the inner optimiser from w at the new x
//
// The paper prints the virtual step as w - xi grad_w g; here it is the step that is really taken, with its
// momentum and clipping, and x's direction is the derivative of that step: the estimator one-step. First
// order (xi = 0): x moves along df/dx at w, and there is no virtual step. It never moves an x that f does not
// contain.

#include <memory>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/estimator.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct DartsOptions {
  InnerOptions inner = {};  // its `steps` are not read: the algorithm takes one
  OuterOptions outer = {};
  bool first_order = false;
  CurvatureOptions curvature =
      {};  // difference_cross and difference_step: the product with C as DARTS's code
  static const Fields<DartsOptions>& fields();
};

class Darts : public Algorithm {
 public:
  explicit Darts(const DartsOptions& options);
  std::string_view name() const override { return first_order_ ? "darts-first-order" : "darts"; }
  // x steps first.
  InnerSolution inner_solution(Oracle& /*oracle*/, const AlgorithmState& state) const override {
    return {.w = state.inner.w, .x = state.x};
  }

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;
  IterationSummary direction(Oracle& oracle, const AlgorithmState& state, const Batch& inner,
                             const Batch& outer) const;
  Trajectory one_step(Oracle& oracle, const AlgorithmState& state, const Batch& batch, bool kept) const;

  InnerOptions inner_;
  bool first_order_;
  std::unique_ptr<const HypergradientEstimator> estimator_;
  std::unique_ptr<const InnerOptimizer> optimizer_;
};

}  // namespace bilevel
