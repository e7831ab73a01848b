#include "bilevel/algorithms/stocbio.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

NeumannEstimatorOptions series_of(const StocbioOptions& options) {
  options.validate();
  NeumannEstimatorOptions series;
  series.terms = options.terms;
  series.rate = options.linear_rate;
  series.curvature = options.curvature;
  return series;
}

}  // namespace

void StocbioOptions::validate() const {
  inner.validate();
  require_at_least("stocbio", "terms", terms, 0);
  require_at_least("stocbio", "hessian_batch", hessian_batch, 0);
  if (linear_rate != 0) require_positive("stocbio", "linear_rate", linear_rate);
  const double rate = linear_rate > 0 ? linear_rate : inner.rate;
  if (!(strong_convexity >= 0) || !(strong_convexity * rate < 1)) {
    throw std::invalid_argument(
        fmt::format("stocbio: strong_convexity = {}: must be at least 0 and below 1 / linear rate = {}",
                    strong_convexity, 1 / rate));
  }
  curvature.validate();
}

const Fields<StocbioOptions>& StocbioOptions::fields() {
  static const Fields<StocbioOptions> table = [] {
    using O = StocbioOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.inner; }, inner_fields());
    add_terms(
        f, [](O & o) -> auto& { return o.terms; });
    add_linear_rate(
        f, [](O & o) -> auto& { return o.linear_rate; });
    f.add(
         "strong_convexity", [](O & o) -> auto& { return o.strong_convexity; },
         "mu, which sets how fast the Hessian batches shrink; 0 = all the same size")
        .in(at_least(0));
    f.add(
         "hessian_batch", [](O & o) -> auto& { return o.hessian_batch; },
         "B, the size of the Hessian batches; 0 = the inner batch")
        .in(at_least(0, bounds::examples));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Stocbio::Stocbio(const StocbioOptions& options)
    : Algorithm(options.outer),
      options_(options),
      series_(series_of(options)),
      optimizer_(make_inner_optimizer(options.inner)) {}

int64_t Stocbio::batch_of_product(int64_t k, double rate, int64_t run_batch) const {
  const int64_t base = options_.hessian_batch > 0 ? options_.hessian_batch : run_batch;
  if (options_.strong_convexity == 0) return base;
  const double size = static_cast<double>(base * options_.terms) *
                      std::pow(1 - rate * options_.strong_convexity, static_cast<double>(k));
  // A whole number that rounding has put above itself stays what it is.
  return static_cast<int64_t>(std::ceil(size * (1 - 1e-12)));
}

void Stocbio::begin(AlgorithmState& state) const { state.inner = optimizer_->start(state.inner.w); }

IterationSummary Stocbio::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  Trajectory inner = warm_inner_steps(oracle, state, streams, options_.inner);  // S
  state.inner = inner.final;
  const double rate = options_.linear_rate > 0 ? options_.linear_rate : inner.last_rate();
  HypergradientRequest request{.x = state.x, .inner = inner};
  request.outer = streams.outer("loss");  // D_F
  for (int64_t k = 0; k < options_.terms; ++k) {
    const int64_t size = batch_of_product(k, rate, streams.options().inner_batch);
    request.hessian.push_back(streams.inner("hessian", size));  // B_{Q-k}
  }
  request.cross = streams.inner("cross");  // D_G
  const Hypergradient estimate = series_.estimate(oracle, request);
  state.x = outer_step(oracle, state.x, estimate.value, state.outer);
  return {.direction = estimate.value, .outer_loss = estimate.outer_loss, .status = estimate.status};
}

}  // namespace bilevel
