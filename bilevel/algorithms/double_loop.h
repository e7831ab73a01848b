#pragma once
// The classic shape: T inner steps, one hypergradient by any estimator, one outer step. With the right
// estimator and starts it is ITD-BiO, AID-BiO (Ji, Yang and Liang 2021, Algorithms 1 and 2), K-RMD (Shaban et
// al. 2019), iDARTS (Zhang et al. 2021, Algorithm 1) and plain reverse mode; registry.cpp says which is
// which.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/estimator.h"

namespace bilevel {

struct DoubleLoopOptions {
  std::string name = "double-loop";
  InnerOptions inner = {};
  OuterOptions outer = {};
  bool warm_start_inner = true;   // the T steps go on where the last ones ended; else from the first w
  bool warm_start_linear = true;  // the linear solve begins at the last v, where the estimator has one
  double growth = 0;  // AID-BiO "increasing": T_k = ceil(growth (k+1)^(1/4)), k from 0; 0 = T as given
  // One batch for all Hessian products of an estimate, which CG needs; or this many independent ones.
  int64_t hessian_batches = 1;
  bool one_batch = false;   // iDARTS: the cross product on the Hessian products' batch, which is then one
  bool with_bound = false;  // a bound on every hypergradient's error, at the price of a few more products
  void validate() const;
};

class DoubleLoop : public Algorithm {
 public:
  DoubleLoop(const DoubleLoopOptions& options, std::unique_ptr<const HypergradientEstimator> estimator);
  std::string_view name() const override { return options_.name; }
  int64_t inner_steps(int64_t iteration) const;  // T_k

 private:
  bool unrolls() const override;
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;
  Trajectory run(Oracle& oracle, const AlgorithmState& state, Streams& streams) const;

  DoubleLoopOptions options_;
  std::unique_ptr<const HypergradientEstimator> estimator_;
  std::unique_ptr<const InnerOptimizer> optimizer_;
};

}  // namespace bilevel
