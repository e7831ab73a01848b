#include "bilevel/algorithms/soba.h"

#include <ATen/ATen.h>

#include <memory>

namespace bilevel {

void SobaOptions::validate() const {
  require_rate("soba", "inner_rate", inner_rate);
  if (linear_rate != 0) require_rate("soba", "linear_rate", linear_rate);
}

Soba::Soba(const SobaOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner_rate;
}

void Soba::begin(AlgorithmState& state) const { state.v = at::zeros_like(state.inner.w); }

SobaDirections soba_directions(Oracle& oracle, const AlgorithmState& state, const Batch& inner,
                               const Batch& outer) {
  const auto inner_at = oracle.linearize(state.inner.w, state.x, inner);
  const OuterGradients outer_at = oracle.outer_gradients(state.inner.w, state.x, outer);
  const Tensor gradient = inner_at->gradient();
  const auto [hessian_v, cross_v] = inner_at->hessian_and_cross(state.v);
  return {gradient, hessian_v - outer_at.w, outer_at.x - cross_v, outer_at.loss};
}

IterationSummary Soba::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  // One inner and one outer sample feed all three directions, as in the paper.
  const Batch inner = streams.inner("sample"), outer_batch = streams.outer("sample");
  const SobaDirections along = soba_directions(oracle, state, inner, outer_batch);
  state.inner.w = descend(state.inner.w, along.w, options_.inner_rate);
  ++state.inner.step;
  state.v = descend(state.v, along.v, options_.linear_rate);
  state.x = outer().step(state.x, along.x, state.outer);
  return {.direction = along.x, .outer_loss = along.outer_loss, .status = Status::ok};
}

}  // namespace bilevel
