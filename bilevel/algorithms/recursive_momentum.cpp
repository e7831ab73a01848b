#include "bilevel/algorithms/recursive_momentum.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "bilevel/algorithms/linear_solves.h"
#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void require_averaging(std::string_view algorithm, double value) {
  require(value > 0 && value <= 1, fmt::format("{}: averaging", algorithm), value, "above 0 and at most 1");
}

void RecursiveMomentumOptions::validate(std::string_view algorithm) const {
  require_positive(algorithm, "inner_rate", inner_rate);
  if (linear_rate != 0) require_positive(algorithm, "linear_rate", linear_rate);
  require_averaging(algorithm, averaging);
  curvature.validate();
}

const Fields<RecursiveMomentumOptions>& RecursiveMomentumOptions::fields() {
  static const Fields<RecursiveMomentumOptions> table = [] {
    using O = RecursiveMomentumOptions;
    Fields<O> f;
    add_inner_rate(
        f, [](O & o) -> auto& { return o.inner_rate; });
    add_linear_rate(
        f, [](O & o) -> auto& { return o.linear_rate; });
    f.add(
         "averaging", [](O & o) -> auto& { return o.averaging; },
         "weight of the newest sample in the average")
        .in(above(0, 1));
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Tensor recursive_momentum(const Tensor& newest, const Tensor& at_previous, const Tensor& momentum,
                          double weight) {
  return at::add(newest, momentum - at_previous, 1 - weight);
}

RecursiveMomentum::RecursiveMomentum(std::string_view name, const RecursiveMomentumOptions& options)
    : Algorithm(options.outer), options_(options) {
  options_.validate(name);
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner_rate;
}

IterationSummary RecursiveMomentum::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const Batch batch = streams.inner("steps");
  const HypergradientSample sample = draw(streams);
  const ImplicitSolve solve = solver(sample);
  const Hypergradient now =
      hypergradient_on(oracle, state.inner.w, state.x, sample, options_.curvature, solve);
  Tensor along_w = oracle.inner_gradient(state.inner.w, state.x, batch);
  Tensor along_x = now.value;
  Status status = now.status;
  const Schedule& schedule = options_.outer.schedule;
  if (state.iteration > 0) {
    const Tensor& w = state.memory.at("previous/w");
    const Tensor& x = state.memory.at("previous/x");
    const double fall = schedule.factor(state.iteration - 1);
    const double weight = options_.averaging * fall * fall;
    along_w = recursive_momentum(along_w, oracle.inner_gradient(w, x, batch), state.memory.at("momentum/w"),
                                 weight);
    const Hypergradient before = hypergradient_on(oracle, w, x, sample, options_.curvature, solve);
    along_x = recursive_momentum(along_x, before.value, state.memory.at("momentum/x"), weight);
    status = worse(status, before.status);
  }
  state.memory["previous/w"] = state.inner.w;
  state.memory["previous/x"] = state.x;
  state.memory["momentum/w"] = along_w;
  state.memory["momentum/x"] = along_x;
  state.inner.w = descend(state.inner.w, along_w, options_.inner_rate * schedule.factor(state.iteration));
  ++state.inner.step;
  state.x = outer_step(oracle, state.x, along_x, state.outer);
  return {.direction = along_x, .outer_loss = now.outer_loss, .status = status};
}

}  // namespace bilevel
