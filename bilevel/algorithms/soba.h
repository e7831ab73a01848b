#pragma once
// SOBA (Dagréou, Ablin, Vaiter and Moreau 2022): the inner variable, the linear system and x move together,
// one stochastic step each, all from the same old point.
//
//     w <- w - inner_rate grad_w g,   v <- v - linear_rate (H v - grad_w f),   x <- x - rate (grad_x f - C v)

#include <string_view>

#include "bilevel/algorithms/algorithm.h"

namespace bilevel {

struct SobaOptions {
  double inner_rate = 0.1;
  double linear_rate = 0;  // of v; 0 = the inner rate: both contract with H
  OuterOptions outer = {};
  void validate() const;
};

// The three directions at one point, of one inner and one outer sample.
struct SobaDirections {
  Tensor w, v, x;
  Tensor outer_loss;
};
SobaDirections soba_directions(Oracle& oracle, const AlgorithmState& state, const Batch& inner,
                               const Batch& outer);

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
