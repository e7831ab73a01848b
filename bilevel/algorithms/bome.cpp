#include "bilevel/algorithms/bome.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/lbfgs.h"
#include "bilevel/core/require.h"

namespace bilevel {

void BomeOptions::validate() const {
  require_at_least("bome", "inner_steps", inner_steps, 1);
  require_positive("bome", "inner_rate", inner_rate);
  if (joint_rate != 0) require_positive("bome", "joint_rate", joint_rate);
  require_positive("bome", "barrier", barrier);
}

const Fields<BomeOptions>& BomeOptions::fields() {
  static const Fields<BomeOptions> table = [] {
    using O = BomeOptions;
    Fields<O> f;
    add_inner_steps(
        f, [](O & o) -> auto& { return o.inner_steps; });
    add_inner_rate(
        f, [](O & o) -> auto& { return o.inner_rate; });
    f.add(
         "joint_rate", [](O & o) -> auto& { return o.joint_rate; }, "rate of w's steps; 0 = the outer rate")
        .in(at_least(0))
        .by_rule();
    f.add(
         "barrier", [](O & o) -> auto& { return o.barrier; }, "barrier coefficient eta")
        .in(above(0));
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Bome::Bome(const BomeOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.joint_rate == 0) options_.joint_rate = options_.outer.rate;
}

void Bome::begin(AlgorithmState& state) const { state.memory["first/w"] = state.inner.w; }

InnerSolution Bome::inner_solution(Oracle& oracle, const AlgorithmState& state) const {
  LbfgsOptions lbfgs;
  lbfgs.relative_tolerance = state.x.scalar_type() == at::kDouble ? 1e-8 : 1e-4;
  lbfgs.most_gradients = 500;  // a network is never solved, and a record should not outlast the run
  lbfgs.first_step = options_.inner_rate;
  const auto gradient = [&](const Tensor& w) { return oracle.inner_gradient(w, state.x, Batch{}); };
  return {.w = minimize(gradient, state.memory.at("first/w"), lbfgs).w, .x = state.x};
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
  state.x = outer_step(oracle, x, direction, state.outer);
  return {.direction = direction, .outer_loss = f.loss, .status = Status::ok};
}

}  // namespace bilevel
