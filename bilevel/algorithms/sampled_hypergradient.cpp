#include "bilevel/algorithms/sampled_hypergradient.h"

namespace bilevel {

HypergradientSample draw_hypergradient_sample(Streams& streams, int64_t products, int64_t inner_size,
                                              int64_t outer_size) {
  HypergradientSample sample;
  sample.outer = streams.outer("loss", outer_size);
  for (int64_t k = 0; k < products; ++k) sample.hessian.push_back(streams.inner("hessian", inner_size));
  sample.cross = streams.inner("cross", inner_size);
  return sample;
}

Hypergradient hypergradient_on(Oracle& oracle, const Tensor& w, const Tensor& x,
                               const HypergradientSample& sample, const CurvatureOptions& curvature,
                               const ImplicitSolve& solve) {
  Trajectory standing;  // of no steps: only where it ends is looked at
  standing.final.w = w;
  const HypergradientRequest request{
      .x = x, .inner = standing, .outer = sample.outer, .cross = sample.cross, .hessian = sample.hessian};
  return implicit_hypergradient(oracle, request, curvature, solve);
}

ImplicitSolve neumann_on(const HypergradientSample& sample, double rate) {
  const NeumannOptions series{.terms = static_cast<int64_t>(sample.hessian.size()), .rate = rate};
  return [series](CurvatureProducts& products, const Tensor& p) {
    return neumann_series([&](const Tensor& v, int64_t k) { return products(v, k); }, p, series);
  };
}

}  // namespace bilevel
