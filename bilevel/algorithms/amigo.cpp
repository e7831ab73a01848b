#include "bilevel/algorithms/amigo.h"

#include <ATen/ATen.h>

#include "bilevel/algorithms/sampled_hypergradient.h"

namespace bilevel {

void AmigoOptions::validate() const {
  require_count("amigo", "inner_steps", inner_steps, 1);
  require_count("amigo", "linear_steps", linear_steps, 1);
  require_rate("amigo", "inner_rate", inner_rate);
  if (linear_rate != 0) require_rate("amigo", "linear_rate", linear_rate);
  curvature.validate();
}

Amigo::Amigo(const AmigoOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner_rate;
}

void Amigo::begin(AlgorithmState& state) const { state.v = at::zeros_like(state.inner.w); }

IterationSummary Amigo::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  for (int64_t t = 0; t < options_.inner_steps; ++t) {
    const Tensor gradient = oracle.inner_gradient(state.inner.w, state.x, streams.inner("steps"));
    state.inner.w = descend(state.inner.w, gradient, options_.inner_rate);
    ++state.inner.step;
  }
  const HypergradientSample sample = draw_hypergradient_sample(streams, options_.linear_steps);
  const FixedPointOptions steps{
      .steps = options_.linear_steps, .rate = options_.linear_rate, .warm_start = state.v};
  const Hypergradient estimate = hypergradient_on(
      oracle, state.inner.w, state.x, sample, options_.curvature,
      [&steps](CurvatureProducts& products, const Tensor& p) {
        return fixed_point([&](const Tensor& v, int64_t k) { return products(v, k); }, p, steps);
      });
  state.v = estimate.solution;
  state.x = outer().step(state.x, estimate.value, state.outer);
  return {.direction = estimate.value, .outer_loss = estimate.outer_loss, .status = estimate.status};
}

}  // namespace bilevel
