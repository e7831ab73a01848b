#include "bilevel/algorithms/vrbo.h"

#include <ATen/ATen.h>

#include "bilevel/algorithms/linear_solves.h"
#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void VrboOptions::validate() const {
  require_at_least("vrbo", "inner_steps", inner_steps, 1);
  require_at_least("vrbo", "period", period, 1);
  require_at_least("vrbo", "large_batch", large_batch, 0);
  require_at_least("vrbo", "terms", terms, 0);
  require_positive("vrbo", "inner_rate", inner_rate);
  if (linear_rate != 0) require_positive("vrbo", "linear_rate", linear_rate);
  curvature.validate();
}

const Fields<VrboOptions>& VrboOptions::fields() {
  static const Fields<VrboOptions> table = [] {
    using O = VrboOptions;
    Fields<O> f;
    add_inner_steps(
        f, [](O & o) -> auto& { return o.inner_steps; });
    add_inner_rate(
        f, [](O & o) -> auto& { return o.inner_rate; });
    add_terms(
        f, [](O & o) -> auto& { return o.terms; });
    add_linear_rate(
        f, [](O & o) -> auto& { return o.linear_rate; });
    f.add(
         "period", [](O & o) -> auto& { return o.period; },
         "number of iterations from one large batch to the next")
        .in(at_least(1, bounds::endless));
    f.add(
         "large_batch", [](O & o) -> auto& { return o.large_batch; }, "examples in a large batch; 0 = all")
        .in(at_least(0, bounds::examples));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Vrbo::Vrbo(const VrboOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner_rate;
}

Hypergradient Vrbo::hypergradient(Oracle& oracle, const Tensor& w, const Tensor& x,
                                  const HypergradientSample& sample) const {
  return hypergradient_on(oracle, w, x, sample, options_.curvature, neumann_on(sample, options_.linear_rate));
}

// The m + 1 steps of w after x has moved. With a large batch to come only u is kept up, as long as steps need
// it.
IterationSummary Vrbo::follow_x(Oracle& oracle, AlgorithmState& state, Streams& streams,
                                bool large_next) const {
  Tensor& along_w = state.memory.at("gradient");
  Tensor& along_x = state.memory.at("direction");
  Tensor w_before = state.inner.w, x_before = state.memory.at("previous/x");
  IterationSummary summary;
  const int64_t steps = options_.inner_steps + 1;
  for (int64_t t = 0; t <= steps; ++t) {
    const bool last = t == steps;
    if (last && large_next) break;
    const Batch batch = streams.inner("steps");
    along_w = along_w + oracle.inner_gradient(state.inner.w, state.x, batch) -
              oracle.inner_gradient(w_before, x_before, batch);
    if (!large_next) {
      const HypergradientSample sample = draw_hypergradient_sample(streams, options_.terms);
      const Hypergradient now = hypergradient(oracle, state.inner.w, state.x, sample);
      const Hypergradient before = hypergradient(oracle, w_before, x_before, sample);
      along_x = along_x + now.value - before.value;
      summary = {.direction = along_x,
                 .outer_loss = now.outer_loss,
                 .status = worse(summary.status, worse(now.status, before.status))};
    }
    if (last) break;
    w_before = state.inner.w;
    x_before = state.x;
    state.inner.w = descend(state.inner.w, along_w, options_.inner_rate);
    ++state.inner.step;
  }
  return summary;
}

IterationSummary Vrbo::large_batch(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const int64_t inner_size = options_.large_batch > 0 ? options_.large_batch : streams.inner_samples();
  const int64_t outer_size = options_.large_batch > 0 ? options_.large_batch : streams.outer_samples();
  const HypergradientSample sample =
      draw_hypergradient_sample(streams, options_.terms, inner_size, outer_size);
  const Hypergradient now = hypergradient(oracle, state.inner.w, state.x, sample);
  state.memory["gradient"] =
      oracle.inner_gradient(state.inner.w, state.x, streams.inner("steps", inner_size));
  state.memory["direction"] = now.value;
  return {.direction = now.value, .outer_loss = now.outer_loss, .status = now.status};
}

IterationSummary Vrbo::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const bool large = state.iteration % options_.period == 0;
  IterationSummary summary;
  if (state.iteration > 0) summary = follow_x(oracle, state, streams, large);
  if (large) summary = large_batch(oracle, state, streams);
  state.memory["previous/x"] = state.x;
  state.x = outer_step(oracle, state.x, summary.direction, state.outer);
  return summary;
}

}  // namespace bilevel
