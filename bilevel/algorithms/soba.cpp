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

IterationSummary Soba::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  // One inner and one outer sample feed all three directions, as in the paper.
  const auto inner = oracle.linearize(state.inner.w, state.x, streams.inner("sample"));
  const OuterGradients outer_at = oracle.outer_gradients(state.inner.w, state.x, streams.outer("sample"));
  const Tensor gradient = inner->gradient();
  const auto [hessian_v, cross_v] = inner->hessian_and_cross(state.v);
  const Tensor direction = outer_at.x - cross_v;

  state.inner.w = descend(state.inner.w, gradient, options_.inner_rate);
  ++state.inner.step;
  state.v = descend(state.v, hessian_v - outer_at.w, options_.linear_rate);
  state.x = outer().step(state.x, direction, state.outer);
  return {.direction = direction, .outer_loss = outer_at.loss, .status = Status::ok};
}

}  // namespace bilevel
