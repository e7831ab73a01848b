#include "bilevel/algorithms/randomized_series.h"

#include <ATen/ATen.h>

#include <cmath>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void RandomizedSeriesOptions::validate(std::string_view algorithm) const {
  require_at_least(algorithm, "terms", terms, 1);
  if (rate != 0) require_positive(algorithm, "linear_rate", rate);
  curvature.validate();
}

const Fields<RandomizedSeriesOptions>& RandomizedSeriesOptions::fields() {
  static const Fields<RandomizedSeriesOptions> table = [] {
    using O = RandomizedSeriesOptions;
    Fields<O> f;
    add_terms(
        f, [](O & o) -> auto& { return o.terms; });
    add_linear_rate(
        f, [](O & o) -> auto& { return o.rate; });
    f.add(
        "single_sample", [](O & o) -> auto& { return o.single_sample; },
        "use one example for each derivative, unless the run is on full sets");
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    return f;
  }();
  return table;
}

int64_t sample_size(const RandomizedSeriesOptions& options, int64_t run_batch) {
  return options.single_sample && run_batch > 0 ? 1 : run_batch;
}

Hypergradient randomized_series(Oracle& oracle, const Tensor& x, Trajectory& inner, Streams& streams,
                                const RandomizedSeriesOptions& options) {
  const double rate = options.rate > 0 ? options.rate : inner.options.rate;
  const int64_t inner_size = sample_size(options, streams.options().inner_batch);
  const int64_t outer_size = sample_size(options, streams.options().outer_batch);
  const int64_t products = streams.random("series length").below(options.terms);  // k

  HypergradientRequest request{.x = x, .inner = inner};
  request.outer = streams.outer("loss", outer_size);
  for (int64_t i = 0; i < products; ++i) request.hessian.push_back(streams.inner("hessian", inner_size));
  request.cross = streams.inner("cross", inner_size);

  return implicit_hypergradient(
      oracle, request, options.curvature, [&](CurvatureProducts& hessian, const Tensor& p) {
        Tensor summand = p;
        for (int64_t i = 0; i < products; ++i) summand = at::sub(summand, hessian(summand, i), rate);
        LinearResult result;
        result.solution = summand * (static_cast<double>(options.terms) * rate);
        result.iterations = result.products = products;
        result.vectors_kept = 2;
        const double growth = (summand.norm() / p.norm()).item<double>();  // 0 / 0 where p = 0
        const bool finite = std::isfinite(summand.norm().item<double>());
        result.status = !finite ? Status::not_finite : growth > 1 ? Status::diverged : Status::ok;
        return result;
      });
}

}  // namespace bilevel
