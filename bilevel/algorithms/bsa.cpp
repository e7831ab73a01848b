#include "bilevel/algorithms/bsa.h"

#include "bilevel/algorithms/option_fields.h"

namespace bilevel {

void BsaOptions::validate() const {
  inner.validate();
  series.validate("bsa");
}

const Fields<BsaOptions>& BsaOptions::fields() {
  static const Fields<BsaOptions> table = [] {
    using O = BsaOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.inner; }, inner_fields());
    f.include(
        [](O & o) -> auto& { return o.series; }, RandomizedSeriesOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Bsa::Bsa(const BsaOptions& options)
    : Algorithm(options.outer), options_(options), optimizer_(make_inner_optimizer(options.inner)) {
  options_.validate();
}

void Bsa::begin(AlgorithmState& state) const { state.inner = optimizer_->start(state.inner.w); }

IterationSummary Bsa::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const int64_t size = sample_size(options_.series, streams.options().inner_batch);
  Trajectory inner = warm_inner_steps(oracle, state, streams, options_.inner, size);
  state.inner = inner.final;
  const Hypergradient estimate = randomized_series(oracle, state.x, inner, streams, options_.series);
  state.x = outer_step(oracle, state.x, estimate.value, state.outer);
  return {.direction = estimate.value, .outer_loss = estimate.outer_loss, .status = estimate.status};
}

}  // namespace bilevel
