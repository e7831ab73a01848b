#include "bilevel/algorithms/soba.h"

#include <ATen/ATen.h>

#include <memory>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void SobaOptions::validate() const {
  require_positive("soba", "inner_rate", inner_rate);
  if (linear_rate != 0) require_positive("soba", "linear_rate", linear_rate);
  inner_schedule.validate();
  linear_schedule.validate();
  curvature.validate();
}

const Fields<SobaOptions>& SobaOptions::fields() {
  static const Fields<SobaOptions> table = [] {
    using O = SobaOptions;
    Fields<O> f;
    add_single_loop_fields(f);
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Soba::Soba(const SobaOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner_rate;
}

void Soba::begin(AlgorithmState& state) const { state.v = at::zeros_like(state.inner.w); }

std::pair<Tensor, Tensor> curvature_and_cross(Linearization& at, const Tensor& v,
                                              const CurvatureOptions& curvature) {
  auto [product, cross] =
      curvature.kind == "gauss-newton" ? std::pair(at.gauss_newton(v), at.cross(v)) : at.hessian_and_cross(v);
  if (curvature.damping > 0) product = at::add(product, v, curvature.damping);
  return {product, cross};
}

SobaDirections soba_directions(Oracle& oracle, const AlgorithmState& state, const Batch& inner,
                               const Batch& outer, const CurvatureOptions& curvature) {
  const auto inner_at = oracle.linearize(state.inner.w, state.x, inner);
  const OuterGradients outer_at = oracle.outer_gradients(state.inner.w, state.x, outer);
  const Tensor gradient = inner_at->gradient();
  const auto [curvature_v, cross_v] = curvature_and_cross(*inner_at, state.v, curvature);
  return {gradient, curvature_v - outer_at.w, outer_at.x - cross_v, outer_at.loss};
}

IterationSummary Soba::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  // One inner and one outer sample feed all three directions, as in the paper.
  const Batch inner = streams.inner("sample"), outer_batch = streams.outer("sample");
  const SobaDirections along = soba_directions(oracle, state, inner, outer_batch, options_.curvature);
  state.inner.w =
      descend(state.inner.w, along.w, options_.inner_rate * options_.inner_schedule.factor(state.inner.step));
  ++state.inner.step;
  state.v =
      descend(state.v, along.v, options_.linear_rate * options_.linear_schedule.factor(state.iteration));
  state.x = outer_step(oracle, state.x, along.x, state.outer);
  return {.direction = along.x, .outer_loss = along.outer_loss, .status = Status::ok};
}

}  // namespace bilevel
