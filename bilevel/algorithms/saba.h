#pragma once
// SABA (Dagréou, Ablin, Vaiter and Moreau 2022): SOBA with SAGA's memory, so that its noise vanishes as it
// converges and a constant rate gets all the way.
//
// The sets are cut into fixed blocks of the run's batch size. For every block the last directions are kept:
// grad_w g, H v and C v of an inner block, grad_w f and grad_x f of an outer one. With D any of these, one
// inner and one outer block b drawn,
//
//     estimate = D_b(now) - D_b(memory) + mean(memory),   then D_b(memory) <- D_b(now)
//
// takes the place of D_b(now) in SOBA. A block is drawn by drawing one of its examples, so that a short last
// block comes up as rarely as it weighs; this asks of a loss what minibatches ask anyway, that the full set's
// is the mean of its blocks' by their sizes. The first iteration passes over all blocks, which costs as many
// derivatives of each kind as there are blocks, and takes their mean; every later one costs one of each.
// Memory: (2 n + m) numbers for every inner block, n + m for every outer one.

#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct SabaOptions {
  double inner_rate = 0.1;
  Schedule inner_schedule = {};
  double linear_rate = 0;  // of v; 0 = the inner rate: both contract with H
  Schedule linear_schedule = {};
  CurvatureOptions curvature = {};  // in place of H: its kind and its damping
  OuterOptions outer = {};
  void validate() const;
  static const Fields<SabaOptions>& fields();
};

class Saba : public Algorithm {
 public:
  explicit Saba(const SabaOptions& options);
  std::string_view name() const override { return "saba"; }

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  SabaOptions options_;
};

}  // namespace bilevel
