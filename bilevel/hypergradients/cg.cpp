#include "bilevel/hypergradients/cg.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/fields/fields.h"

namespace bilevel {

void KrylovOptions::validate() const {
  require_at_least("terms", steps, 0);
  if (!(relative_tolerance >= 0)) {
    throw std::invalid_argument(
        fmt::format("relative_tolerance = {}: must be at least 0", relative_tolerance));
  }
  curvature.validate();
}

const Fields<KrylovOptions>& KrylovOptions::fields() {
  static const Fields<KrylovOptions> table = [] {
    using O = KrylovOptions;
    Fields<O> f;
    f.add(
         "terms", [](O & o) -> auto& { return o.steps; }, "K: number of steps, one Hessian product each")
        .in(at_least(0, bounds::within_step));
    f.add(
         "relative_tolerance", [](O & o) -> auto& { return o.relative_tolerance; },
         "stop at this residual; 0 = always take all steps")
        .in(at_least(0));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    return f;
  }();
  return table;
}

ConjugateGradientEstimator::ConjugateGradientEstimator(KrylovOptions options) : options_(std::move(options)) {
  options_.validate();
}

double ConjugateGradientEstimator::theory(const TheoryInputs& in) const {
  if (in.mu <= 0) return std::numeric_limits<double>::quiet_NaN();
  const double root = std::sqrt(in.smoothness / in.mu), k = static_cast<double>(options_.steps);
  return in.cross_norm * in.p_norm / in.mu * 2 * root * std::pow((root - 1) / (root + 1), k);
}

double ConjugateGradientEstimator::contraction(const Spectrum& curvature, double /*inner_rate*/) const {
  if (!(curvature.smallest > 0)) return 1;
  const double root = std::sqrt(curvature.largest / curvature.smallest);
  return (root - 1) / (root + 1);
}

Hypergradient ConjugateGradientEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  CurvatureOptions undamped = options_.curvature;  // the solver damps in the passes that it makes anyway
  undamped.damping = 0;
  return implicit_hypergradient(oracle, request, undamped, [&](CurvatureProducts& products, const Tensor& p) {
    KrylovSolveOptions cg;
    cg.max_iterations = options_.steps;
    cg.relative_tolerance = options_.relative_tolerance;
    cg.warm_start = request.warm_start;
    cg.damping = options_.curvature.damping;
    return conjugate_gradient(products.matrix(), p, cg);
  });
}

}  // namespace bilevel
