#include "bilevel/algorithms/bome.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace bilevel {

void BomeOptions::validate() const {
  require_count("bome", "inner_steps", inner_steps, 1);
  require_rate("bome", "inner_rate", inner_rate);
  if (joint_rate != 0) require_rate("bome", "joint_rate", joint_rate);
  require_rate("bome", "barrier", barrier);
}

Bome::Bome(const BomeOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.joint_rate == 0) options_.joint_rate = options_.outer.rate;
}

IterationSummary Bome::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const Tensor w = state.inner.w, x = state.x;
  Tensor solved = w;
  for (int64_t t = 0; t < options_.inner_steps; ++t) {
    solved = descend(solved, oracle.inner_gradient(solved, x, streams.inner("steps")), options_.inner_rate);
  }
  const Batch batch = streams.inner("value");
  const Tensor q_w = oracle.inner_gradient(w, x, batch);
  const Tensor q_x =
      oracle.inner_gradient_in_outer(w, x, batch) - oracle.inner_gradient_in_outer(solved, x, batch);
  const OuterGradients f = oracle.outer_gradients(w, x, streams.outer("loss"));

  const double ratio = options_.outer.rate / options_.joint_rate;
  const double square = at::add(at::dot(q_w, q_w), at::dot(q_x, q_x), ratio).item<double>();
  const double product = at::add(at::dot(f.w, q_w), at::dot(f.x, q_x), ratio).item<double>();
  // Where w is solved to the last bit there is nothing to lower.
  const double lambda = square > 0 ? std::max(0.0, options_.barrier - product / square) : 0.0;

  const Tensor direction = at::add(f.x, q_x, lambda);
  const double rate = options_.joint_rate * options_.outer.schedule.factor(state.iteration);
  state.inner.w = descend(w, at::add(f.w, q_w, lambda), rate);
  ++state.inner.step;
  state.x = outer().step(x, direction, state.outer);
  return {.direction = direction, .outer_loss = f.loss, .status = Status::ok};
}

}  // namespace bilevel
