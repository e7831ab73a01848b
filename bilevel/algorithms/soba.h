#pragma once
// SOBA (Dagréou, Ablin, Vaiter and Moreau 2022): the inner variable, the linear system and x move together,
// one stochastic step each, all from the same old point.
//
//     w <- w - inner_rate grad_w g,   v <- v - linear_rate (H v - grad_w f),   x <- x - rate (grad_x f - C v)
//
// With constant rates x stops at a distance that the noise makes; the schedules let all three fall.

#include <string_view>
#include <utility>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct SobaOptions {
  double inner_rate = 0.1;
  Schedule inner_schedule = {};
  double linear_rate = 0;  // of v; 0 = the inner rate: both contract with H
  Schedule linear_schedule = {};
  CurvatureOptions curvature = {};  // in place of H: its kind and its damping
  OuterOptions outer = {};
  void validate() const;
  static const Fields<SobaOptions>& fields();
};

// The three directions at one point, of one inner and one outer sample.
struct SobaDirections {
  Tensor w, v, x;
  Tensor outer_loss;
};
SobaDirections soba_directions(Oracle& oracle, const AlgorithmState& state, const Batch& inner,
                               const Batch& outer, const CurvatureOptions& curvature = {});
// The products of v with the curvature and with C, in one pass where the curvature is the Hessian.
std::pair<Tensor, Tensor> curvature_and_cross(Linearization& at, const Tensor& v,
                                              const CurvatureOptions& curvature);

class Soba : public Algorithm {
 public:
  explicit Soba(const SobaOptions& options);
  std::string_view name() const override { return "soba"; }

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  SobaOptions options_;
};

}  // namespace bilevel
