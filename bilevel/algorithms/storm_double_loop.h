#pragma once
// The double loops that FSLA is compared with (Li, Gu and Huang 2022, section 6.2): T inner steps from the
// first w, a hypergradient by any estimator, and x along the momentum that FSLA has (storm.h),
//
//     x_{k+1} = x_k - alpha_k d_k,    d_{k+1} = h(x_{k+1}) + (1 - eta_k) (d_k - h(x_k)),    d_0 = h(x_0)
//
// h is a function of x and of one sample: the T batches of the inner steps and those of the estimator. Both
// values of h in a step are taken on the same new sample, so a step costs two inner loops and two estimates
// where a double loop without momentum costs one. Back-propagation, the Neumann series and CG with T > 1 in
// the paper's figures are this algorithm. alpha and eta fall together, as in Algorithm 1; the inner rate does
// not, because every inner loop begins again, and with a rate that falls it would end further from its
// solution each time.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel {

struct StormDoubleLoopOptions {
  InnerOptions inner = {};
  std::string method = "cg";  // any estimator; reverse is the paper's BP
  EstimatorSettings estimator = {};
  double momentum_decay = 0.9;  // eta_0, in (0, 1]
  Schedule schedule = {
      .kind = ScheduleKind::inverse_sqrt};  // of alpha (where the outer optimiser is sgd) and eta
  OuterOptions outer = {};
  void validate() const;
  static const Fields<StormDoubleLoopOptions>& fields();
};

class StormDoubleLoop : public Algorithm {
 public:
  explicit StormDoubleLoop(const StormDoubleLoopOptions& options);
  std::string_view name() const override { return "storm-double-loop"; }
  // The last inner loop ran at the new x.
  InnerSolution inner_solution(Oracle& /*oracle*/, const AlgorithmState& state) const override {
    return {.w = state.inner.w, .x = state.x};
  }

 private:
  struct Sample {
    std::vector<Batch> steps;
    Batch outer, hessian, cross;
  };
  bool unrolls() const override { return !estimator_->implicit(); }
  void begin(AlgorithmState& state) const override;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;
  Sample draw(Streams& streams) const;
  InnerAndHypergradient evaluate(Oracle& oracle, const Tensor& x, const Tensor& start,
                                 const Sample& sample) const;

  StormDoubleLoopOptions options_;
  std::unique_ptr<const HypergradientEstimator> estimator_;
};

}  // namespace bilevel
