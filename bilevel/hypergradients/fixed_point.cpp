#include "bilevel/hypergradients/fixed_point.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/fields/fields.h"

namespace bilevel {

void FixedPointEstimatorOptions::validate() const {
  require_at_least("terms", steps, 0);
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw std::invalid_argument(
        fmt::format("rate = {}: must be finite and positive, or 0 for the inner loop's rate", rate));
  }
  if (!(relative_tolerance >= 0)) {
    throw std::invalid_argument(
        fmt::format("relative_tolerance = {}: must be at least 0", relative_tolerance));
  }
  curvature.validate();
}

const Fields<FixedPointEstimatorOptions>& FixedPointEstimatorOptions::fields() {
  static const Fields<FixedPointEstimatorOptions> table = [] {
    using O = FixedPointEstimatorOptions;
    Fields<O> f;
    f.add(
         "terms", [](O & o) -> auto& { return o.steps; }, "K: number of steps, one Hessian product each")
        .in(at_least(0, bounds::within_step));
    f.add(
         "linear_rate", [](O & o) -> auto& { return o.rate; }, "linear rate; 0 = the last inner rate")
        .in(at_least(0));
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

FixedPointEstimator::FixedPointEstimator(FixedPointEstimatorOptions options) : options_(std::move(options)) {
  options_.validate();
}

double FixedPointEstimator::theory(const TheoryInputs& in) const {
  return series_theory(in, options_.rate > 0 ? options_.rate : in.rate, options_.steps);
}

double FixedPointEstimator::contraction(const Spectrum& curvature, double inner_rate) const {
  return curvature.contraction(options_.rate > 0 ? options_.rate : inner_rate);
}

Hypergradient FixedPointEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  return implicit_hypergradient(
      oracle, request, options_.curvature, [&](CurvatureProducts& products, const Tensor& p) {
        FixedPointOptions options;
        options.steps = options_.steps;
        options.rate = options_.rate > 0 ? options_.rate : request.inner.last_rate();
        options.relative_tolerance = options_.relative_tolerance;
        options.warm_start = request.warm_start;
        return fixed_point([&](const Tensor& v, int64_t k) { return products(v, k); }, p, options);
      });
}

}  // namespace bilevel
