#include "bilevel/algorithms/sustain.h"

#include <ATen/ATen.h>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void SustainOptions::validate() const {
  require_at_least("sustain", "terms", terms, 1);
  momentum.validate("sustain");
}

const Fields<SustainOptions>& SustainOptions::fields() {
  static const Fields<SustainOptions> table = [] {
    using O = SustainOptions;
    Fields<O> f;
    add_terms(
        f, [](O & o) -> auto& { return o.terms; });
    f.include(
        [](O & o) -> auto& { return o.momentum; }, RecursiveMomentumOptions::fields());
    return f;
  }();
  return table;
}

Sustain::Sustain(const SustainOptions& options)
    : RecursiveMomentum("sustain", options.momentum), options_(options) {
  options_.validate();
}

HypergradientSample Sustain::draw(Streams& streams) const {
  return draw_hypergradient_sample(streams, streams.random("length").below(options_.terms));
}

ImplicitSolve Sustain::solver(const HypergradientSample& sample) const {
  const auto length = static_cast<int64_t>(sample.hessian.size());
  const double scale = static_cast<double>(options_.terms) * linear_rate();
  return [length, scale, rate = linear_rate()](CurvatureProducts& products, const Tensor& p) {
    LinearResult result;
    Tensor summand = p;
    for (int64_t k = 0; k < length; ++k) summand = descend(summand, products(summand, k), rate);
    result.solution = scale * summand;
    result.status = Status::ok;
    result.iterations = result.products = length;
    result.vectors_kept = 2;
    return result;
  };
}

}  // namespace bilevel
