#pragma once
// MA-SOBA (Chen, Xiao and Balasubramanian 2023): SOBA whose x follows a moving average of its direction,
// which takes the noise out of the only variable that nothing contracts.
//
//     h <- (1 - averaging) h + averaging (grad_x f - C v),   x <- x - rate h,   w and v as in SOBA
//
// The paper steps along the average of the iteration before and begins it at zero; here the average takes in
// the new direction first and begins as the first one, so that averaging = 1 is SOBA.

#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct MaSobaOptions {
  double inner_rate = 0.1;
  Schedule inner_schedule = {};
  double linear_rate = 0;  // of v; 0 = the inner rate: both contract with H
  Schedule linear_schedule = {};
  CurvatureOptions curvature = {};  // in place of H: its kind and its damping
  double averaging = 0.1;           // the new direction's part, in (0, 1]; 0.1 averages about ten of them
  OuterOptions outer = {};
  void validate() const;
  static const Fields<MaSobaOptions>& fields();
};

class MaSoba : public Algorithm {
 public:
  explicit MaSoba(const MaSobaOptions& options);
  std::string_view name() const override { return "ma-soba"; }

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  MaSobaOptions options_;
};

}  // namespace bilevel
