#include "bilevel/hypergradients/neumann.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

namespace bilevel {

void NeumannEstimatorOptions::validate() const {
  if (terms < 0) throw std::invalid_argument(fmt::format("terms = {}: must be at least 0", terms));
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw std::invalid_argument(
        fmt::format("rate = {}: must be finite and positive, or 0 for the inner loop's rate", rate));
  }
  curvature.validate();
}

NeumannEstimator::NeumannEstimator(NeumannEstimatorOptions options) : options_(std::move(options)) {
  options_.validate();
}

Hypergradient NeumannEstimator::compute(Oracle& oracle, const HypergradientRequest& request) const {
  return implicit_hypergradient(
      oracle, request, options_.curvature, [&](CurvatureProducts& products, const Tensor& p) {
        NeumannOptions series;
        series.terms = options_.terms;
        series.rate = options_.rate > 0 ? options_.rate : request.inner.last_rate();
        return neumann_series([&](const Tensor& v, int64_t k) { return products(v, k); }, p, series);
      });
}

}  // namespace bilevel
