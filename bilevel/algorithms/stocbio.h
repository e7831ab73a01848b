#pragma once
// stocBiO (Ji, Yang and Liang 2021, Algorithms 2 and 3): T stochastic inner steps, then a Neumann series in
// which every Hessian product reads its own batch, and the batches shrink along the series because later
// products weigh less in its variance:
//
//     v = eta * sum_{i=0..Q} r_i,   r_Q = grad_w F(D_F),   r_{i-1} = (I - eta H(B_i)) r_i,
//     |B_{Q+1-j}| = B Q (1 - eta mu)^(j-1) rounded up:  B_Q is the largest and is used first,
//     x <- x - rate (grad_x F(D_F) - C(D_G) v)
//
// S, D_F, all the B_j and D_G are drawn independently, but grad_x F and grad_w F share D_F.

#include <cstdint>
#include <memory>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/implicit.h"
#include "bilevel/hypergradients/neumann.h"

namespace bilevel {

struct StocbioOptions {
  InnerOptions inner = {};  // T, and the rate of the inner steps
  OuterOptions outer = {};
  int64_t terms = 10;      // Q: Hessian products of the series; 0 is legal and leaves eta grad_w F
  double linear_rate = 0;  // eta, at most 1 / L; 0 = the rate of the last inner step
  // mu of the decay of the batches; 0 = no decay, all Q batches are of one size: it is seldom known, and too
  // large a guess starves the last products.
  double strong_convexity = 0;
  // B; without decay the size of each batch. 0 = the run's inner batch, which may be the full set.
  int64_t hessian_batch = 0;
  CurvatureOptions curvature = {};
  void validate() const;
  static const Fields<StocbioOptions>& fields();
};

class Stocbio : public Algorithm {
 public:
  explicit Stocbio(const StocbioOptions& options);
  std::string_view name() const override { return "stocbio"; }
  // Examples of product k, from 0, which reads B_{Q-k}; 0 = the full set. `run_batch` is the run's inner
  // batch and `rate` eta. Rounded up, so at least 1 where the paper's lower bound on B does not hold.
  int64_t batch_of_product(int64_t k, double rate, int64_t run_batch) const;

 private:
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;

  StocbioOptions options_;
  NeumannEstimator series_;
  std::unique_ptr<const InnerOptimizer> optimizer_;
};

}  // namespace bilevel
