#include "bilevel/algorithms/bsa.h"

namespace bilevel {

void BsaOptions::validate() const {
  inner.validate();
  series.validate("bsa");
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
  state.x = outer().step(state.x, estimate.value, state.outer);
  return {.direction = estimate.value, .outer_loss = estimate.outer_loss, .status = estimate.status};
}

}  // namespace bilevel
