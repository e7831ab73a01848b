#include "bilevel/hypergradients/neumann.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/fields/fields.h"

namespace bilevel {

void NeumannEstimatorOptions::validate() const {
  require_at_least("terms", terms, 0);
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw std::invalid_argument(
        fmt::format("rate = {}: must be finite and positive, or 0 for the inner loop's rate", rate));
  }
  curvature.validate();
}

const Fields<NeumannEstimatorOptions>& NeumannEstimatorOptions::fields() {
  static const Fields<NeumannEstimatorOptions> table = [] {
    using O = NeumannEstimatorOptions;
    Fields<O> f;
    f.add(
         "terms", [](O & o) -> auto& { return o.terms; }, "K: number of Hessian products in the series")
        .in(at_least(0, bounds::within_step));
    f.add(
         "linear_rate", [](O & o) -> auto& { return o.rate; }, "linear rate; 0 = the last inner rate")
        .in(at_least(0));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    return f;
  }();
  return table;
}

NeumannEstimator::NeumannEstimator(NeumannEstimatorOptions options) : options_(std::move(options)) {
  options_.validate();
}

double NeumannEstimator::theory(const TheoryInputs& in) const {
  return series_theory(in, options_.rate > 0 ? options_.rate : in.rate, options_.terms + 1);
}

double NeumannEstimator::contraction(const Spectrum& curvature, double inner_rate) const {
  return curvature.contraction(options_.rate > 0 ? options_.rate : inner_rate);
}

Hypergradient NeumannEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  return implicit_hypergradient(
      oracle, request, options_.curvature, [&](CurvatureProducts& products, const Tensor& p) {
        NeumannOptions series;
        series.terms = options_.terms;
        series.rate = options_.rate > 0 ? options_.rate : request.inner.last_rate();
        series.checks = &oracle.finite();
        return neumann_series([&](const Tensor& v, int64_t k) { return products(v, k); }, p, series);
      });
}

}  // namespace bilevel
