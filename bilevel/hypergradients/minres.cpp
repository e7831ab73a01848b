#include "bilevel/hypergradients/minres.h"

#include <utility>

namespace bilevel {

MinresEstimator::MinresEstimator(KrylovOptions options) : options_(std::move(options)) {
  options_.validate();
}

Hypergradient MinresEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  CurvatureOptions undamped = options_.curvature;  // the solver damps in the passes that it makes anyway
  undamped.damping = 0;
  return implicit_hypergradient(oracle, request, undamped, [&](CurvatureProducts& products, const Tensor& p) {
    KrylovSolveOptions options;
    options.max_iterations = options_.steps;
    options.relative_tolerance = options_.relative_tolerance;
    options.warm_start = request.warm_start;
    options.damping = options_.curvature.damping;
    return minres(products.matrix(), p, options);
  });
}

}  // namespace bilevel
