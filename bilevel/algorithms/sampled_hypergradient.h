#pragma once
// A stochastic hypergradient as a function of the point alone: all its batches are drawn first, so that
// algorithms that reduce variance can evaluate it at two points on one sample.
//
//     grad_x f(outer) - C(cross) v,   v from p = grad_w f(outer) and one independent batch per Hessian
//     product

#include <cstdint>
#include <vector>

#include "bilevel/algorithms/streams.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct HypergradientSample {
  Batch outer, cross;
  std::vector<Batch> hessian;  // one for each product
};
// From the streams loss, cross and hessian. Sizes: 0 = the run's.
HypergradientSample draw_hypergradient_sample(Streams& streams, int64_t products, int64_t inner_size = 0,
                                              int64_t outer_size = 0);

Hypergradient hypergradient_on(Oracle& oracle, const Tensor& w, const Tensor& x,
                               const HypergradientSample& sample, const CurvatureOptions& curvature,
                               const ImplicitSolve& solve);

// rate sum_{j=0..K} (I - rate H)^j p, K = sample.hessian.size(), a new matrix in every product.
ImplicitSolve neumann_on(const HypergradientSample& sample, double rate);

}  // namespace bilevel
