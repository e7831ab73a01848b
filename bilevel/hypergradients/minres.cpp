#include "bilevel/hypergradients/minres.h"

#include <utility>

namespace bilevel {

MinresEstimator::MinresEstimator(KrylovOptions options) : options_(std::move(options)) {
  options_.validate();
}

Hypergradient MinresEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  return implicit_hypergradient(oracle, request, options_.curvature,
                                [&](CurvatureProducts& products, const Tensor& p) {
                                  KrylovSolveOptions options;
                                  options.max_iterations = options_.steps;
                                  options.relative_tolerance = options_.relative_tolerance;
                                  options.warm_start = request.warm_start;
                                  return minres(products.matrix(), p, options);
                                });
}

}  // namespace bilevel
