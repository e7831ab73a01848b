#include "bilevel/algorithms/storm.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

OuterOptions outer_of(const StormOptions& options, std::string_view algorithm) {
  options.validate(algorithm);
  OuterOptions outer = options.outer;
  if (outer.optimizer == "sgd") outer.schedule = options.schedule;
  return outer;
}

}  // namespace

void StormOptions::validate(std::string_view algorithm) const {
  require_positive(algorithm, "inner_rate", inner_rate);
  if (!(momentum_decay > 0 && momentum_decay <= 1)) {
    throw std::invalid_argument(
        fmt::format("{}: momentum_decay = {}: must be above 0 and at most 1", algorithm, momentum_decay));
  }
  schedule.validate();
}

const Fields<StormOptions>& StormOptions::fields() {
  static const Fields<StormOptions> table = [] {
    using O = StormOptions;
    Fields<O> f;
    add_inner_rate(
        f, [](O & o) -> auto& { return o.inner_rate; });
    f.add(
         "momentum_decay", [](O & o) -> auto& { return o.momentum_decay; },
         "fraction of the momentum that the first step forgets")
        .in(above(0, 1));
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

StormLoop::StormLoop(const StormOptions& options, std::string_view algorithm)
    : Algorithm(outer_of(options, algorithm)), options_(options) {}

void StormLoop::begin(AlgorithmState& state) const { state.v = at::zeros_like(state.inner.w); }

IterationSummary StormLoop::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const double factor = options_.schedule.factor(state.iteration);
  const Tensor x = state.x, w = state.inner.w, v = state.v;
  if (!state.memory.contains("momentum")) {
    state.memory["momentum"] = oracle.outer_gradients(w, x, streams.outer("loss")).x;
  }
  const Tensor momentum = state.memory["momentum"];

  state.x = projected(oracle.problem(), outer_step(oracle, x, momentum, state.outer));
  const Tensor gradient = oracle.inner_gradient(w, state.x, streams.inner("steps"));
  state.inner.w = descend(w, gradient, options_.inner_rate * factor);
  ++state.inner.step;
  const LinearResult linear =
      next_v(oracle, {.x = state.x, .before = w, .after = state.inner.w, .v = v, .factor = factor}, streams);
  state.v = linear.solution;

  const Batch loss_sample = streams.outer("loss"), cross_sample = streams.inner("cross");
  const OuterGradients newer = oracle.outer_gradients(state.inner.w, state.x, loss_sample);
  const OuterGradients older = oracle.outer_gradients(w, x, loss_sample);
  const Tensor newer_cross = oracle.linearize(state.inner.w, state.x, cross_sample)->cross(state.v);
  const Tensor older_cross = oracle.linearize(w, x, cross_sample)->cross(v);
  state.memory["momentum"] = storm_momentum(momentum, newer.x - newer_cross, older.x - older_cross,
                                            options_.momentum_decay * factor);
  // The newest estimate, not d_k: d_0 may be zero by right, and would look like an optimum.
  return {.direction = state.memory["momentum"],
          .outer_loss = newer.loss,
          .status = linear.status,
          .needs_positive = needs_positive()};
}

Tensor storm_momentum(const Tensor& momentum, const Tensor& newer, const Tensor& older, double decay) {
  return at::add(newer, momentum - older, 1 - decay);
}

}  // namespace bilevel
