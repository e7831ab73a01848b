#pragma once
// What SUSTAIN and MRBO share: recursive momentum (STORM, Cutkosky and Orabona 2019) on both levels, w and x
// stepping together from the old point. With D either direction, grad_w g or the stochastic hypergradient,
//
//     d_k = D(now; sample) + (1 - a_k) (d_{k-1} - D(before; sample)),    d_0 = D(start; sample)
//
// where `before` is the point of the iteration before, on the *new* sample: the difference of the two
// evaluations has a variance that falls with the step, which is what makes it work.
// Both papers let the rates fall like s_k ~ k^(-1/3) and the weight like a_k ~ s_{k-1}^2. Here s_k is the
// outer rate's schedule (power with exponent 1/3 is theirs): the inner rate and the weight follow it.

#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/sampled_hypergradient.h"

namespace bilevel {

struct RecursiveMomentumOptions {
  double inner_rate = 0.1;
  double linear_rate = 0;  // of the Neumann series; 0 = the inner rate: both need rate < 2 / L
  // a_0, in (0, 1]: 1 forgets, and leaves plain stochastic directions; 0.1 averages about ten samples.
  double averaging = 0.1;
  OuterOptions outer = {};
  CurvatureOptions curvature = {};
  void validate(std::string_view algorithm) const;
  static const Fields<RecursiveMomentumOptions>& fields();
};

class RecursiveMomentum : public Algorithm {
 protected:
  RecursiveMomentum(std::string_view name, const RecursiveMomentumOptions& options);
  double linear_rate() const { return options_.linear_rate; }

 private:
  virtual HypergradientSample draw(Streams& streams) const = 0;
  virtual ImplicitSolve solver(const HypergradientSample& sample) const = 0;
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const final;

  RecursiveMomentumOptions options_;
};

// newest + (1 - weight) (momentum - at_previous)
Tensor recursive_momentum(const Tensor& newest, const Tensor& at_previous, const Tensor& momentum,
                          double weight);

void require_averaging(std::string_view algorithm, double value);  // in (0, 1]

}  // namespace bilevel
