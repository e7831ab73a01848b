#pragma once
// HOAG (Pedregosa 2016): the inner problem and the linear system are both solved from where the last
// iteration ended to a tolerance that shrinks along the run, |grad_w g| <= eps_k and |H v - grad_w f| <=
// eps_k; summable tolerances are what its convergence needs. As in the author's code, L-BFGS solves the inner
// problem, and nothing but a generous limit ends it before the tolerance is met.
//
// The outer step adapts itself to the objective, which the next iteration sees anyway: longer after a
// sufficient decrease, kept while the objective does not rise by more than the tolerances leave unknown, else
// taken back (also where the inner problem at the new x leaves the finite numbers). To take a step back is to
// be as if it had never been taken: the same step of the outer optimiser, half as long, from the same x, w
// and v, is compared with the same objective. (The author's code halves the step and goes on from where the
// long one led.)
//
// What is unknown: |grad_w g| <= eps allows a w that is eps / mu away from the solution, and f there differs
// by <grad_w f, H^-1 grad_w g> = <v, grad_w g> to first order, so by |v| eps: v carries the 1 / mu.
//
// A tolerance means something for a fixed function only, so one sample of g serves a whole iteration, inner
// steps, Hessian and cross products alike, and one of f. The algorithm is made for full sets.

#include <cstdint>
#include <string>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct HoagTolerance {
  double first = 1e-3;                 // eps_0
  std::string decay = "exponential";   // eps_0 factor^k; quadratic: eps_0 / (k+1)^2; cubic: eps_0 / (k+1)^3
  double factor = 0.9;                 // of the exponential decay, in (0, 1)
  double least = 1e-10;                // eps_k falls no further: rounding ends there; of floats at 1e-5
  int64_t most_steps = 10'000;         // of L-BFGS, and of CG, in one iteration: the author's limit
  double at(int64_t iteration) const;  // eps_k, k from 0
  void validate() const;
};

struct HoagOptions {
  double inner_rate = 0.1;  // of L-BFGS's first trial step, which finds its own lengths afterwards
  OuterOptions outer = {};  // its step is scaled by the adaptive factor, which begins at 1
  HoagTolerance tolerance = {};
  bool adaptive = true;  // false: the outer optimiser's steps as they are, and nothing is taken back
  double increase = 1.05;
  double decrease = 0.5;
  double sufficient = 0.5;  // decrease / predicted decrease: 1/2 is what a step of 1 / L gives
  CurvatureOptions curvature = {};
  void validate() const;
  static const Fields<HoagOptions>& fields();
};

// state.numbers: tolerance, inner_steps, inner_gradient_norm, residual of the last iteration; step_factor and
// rejections of the adaptive step. The status is max_iterations where one of the two limits was hit.
class Hoag : public Algorithm {
 public:
  explicit Hoag(const HoagOptions& options);
  std::string_view name() const override { return "hoag"; }
  // After a step that was taken back, w is that of the x before it.
  InnerSolution inner_solution(Oracle& oracle, const AlgorithmState& state) const override;

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;
  // Converged, or why not.
  Status solve_inner(Oracle& oracle, AlgorithmState& state, const Batch& batch, double tolerance) const;
  // What the objective at the present x says about the step that led there; false = take it back.
  bool accept(AlgorithmState& state, const OuterGradients& outer_at, double tolerance) const;
  IterationSummary take_back(AlgorithmState& state, const Tensor& loss) const;

  HoagOptions options_;
};

}  // namespace bilevel
