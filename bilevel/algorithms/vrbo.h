#pragma once
// VRBO (Yang, Ji and Liang 2021, "Provably faster algorithms for bilevel optimization", Algorithm 2): SPIDER
// on both levels. u estimates grad_w g and h the hypergradient (a Neumann series of K independent products).
// Every `period` iterations both are taken anew on a large batch; x steps along h; and then, with x standing
// still, m + 1 steps of w, which is what the box counts (t from 0 to m)
//
//     u <- u + grad_w g(now; sample) - grad_w g(before; sample),   h the same,   w <- w - inner_rate u
//
// where `before` is where u and h were last made: the old x for the first of them. After the last step u and
// h are made once more, so that they belong to the point from which x steps next.
//
// Here an iteration ends with the step of x, and begins with the m + 1 steps of w that the last one calls for
// (the first has none): the same sequence, and x is projected before anything is evaluated there. Estimates
// that the large batch would overwrite are not made. Cost in inner, outer, Hessian and cross derivatives:
//     first 1, 1, K, 1;   later large ones 2m + 3, 1, K, 1;   others 2(m + 2), 2(m + 2), 2(m + 2) K, 2(m + 2)

#include <cstdint>
#include <string_view>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/sampled_hypergradient.h"

namespace bilevel {

struct VrboOptions {
  int64_t inner_steps = 10;  // m: an iteration takes m + 1 steps of w
  int64_t period = 10;       // from one large batch to the next; more lets the small batches' errors pile up
  int64_t large_batch = 0;   // examples of either set; 0 = the full sets, as for finite sums
  int64_t terms = 10;        // K
  double inner_rate = 0.1;
  double linear_rate = 0;  // of the Neumann series; 0 = the inner rate: both need rate < 2 / L
  OuterOptions outer = {};
  CurvatureOptions curvature = {};
  void validate() const;
  static const Fields<VrboOptions>& fields();
};

class Vrbo : public Algorithm {
 public:
  explicit Vrbo(const VrboOptions& options);
  std::string_view name() const override { return "vrbo"; }

 private:
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override;
  Hypergradient hypergradient(Oracle& oracle, const Tensor& w, const Tensor& x,
                              const HypergradientSample& sample) const;
  IterationSummary follow_x(Oracle& oracle, AlgorithmState& state, Streams& streams, bool large_next) const;
  IterationSummary large_batch(Oracle& oracle, AlgorithmState& state, Streams& streams) const;

  VrboOptions options_;
};

}  // namespace bilevel
