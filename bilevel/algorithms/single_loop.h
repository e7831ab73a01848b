#pragma once
// The single loops that FSLA is compared with (Li, Gu and Huang 2022, section 6.2): one warm-started inner
// step an iteration, the same STORM momentum (storm.h), but v computed anew at (x_{k+1}, w_{k+1}) every time,
// by a Neumann series or by conjugate gradients from zero. K products an iteration where FSLA has one. (K
// counts products here as everywhere; the K of the paper's series is one larger.)

#include <cstdint>
#include <string>
#include <string_view>

#include "bilevel/algorithms/storm.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct SingleLoopOptions {
  StormOptions storm = {};
  std::string solver = "neumann";  // or cg
  int64_t terms = 10;              // Hessian products of the series; at most so many steps of CG
  double linear_rate = 0;          // of the series, which does not fall along the run; 0 = the inner rate
  double relative_tolerance = 0;   // of CG; 0 = all the steps
  CurvatureOptions curvature = {};
  void validate() const;
  static const Fields<SingleLoopOptions>& fields();
};

class SingleLoop : public StormLoop {
 public:
  explicit SingleLoop(const SingleLoopOptions& options);
  std::string_view name() const override { return name_; }

 private:
  LinearResult next_v(Oracle& oracle, const LinearPoint& at, Streams& streams) const override;
  bool needs_positive() const override { return options_.solver == "cg"; }

  SingleLoopOptions options_;
  std::string name_;
};

}  // namespace bilevel
