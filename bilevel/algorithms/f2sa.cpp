#include "bilevel/algorithms/f2sa.h"

#include <ATen/ATen.h>

#include <cmath>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/core/require.h"

namespace bilevel {

void F2saOptions::validate() const {
  require_at_least("f2sa", "inner_steps", inner_steps, 1);
  require_positive("f2sa", "inner_rate", inner_rate);
  require_positive("f2sa", "penalty", penalty);
  schedule.validate();
  require_nonnegative("f2sa: penalty_growth", growth);
}

const Fields<F2saOptions>& F2saOptions::fields() {
  static const Fields<F2saOptions> table = [] {
    using O = F2saOptions;
    Fields<O> f;
    add_inner_steps(
        f, [](O & o) -> auto& { return o.inner_steps; });
    add_inner_rate(
        f, [](O & o) -> auto& { return o.inner_rate; });
    f.add(
        "inner_schedule", [](O & o) -> auto& { return o.schedule; }, schedule_words);
    f.add(
         "penalty", [](O & o) -> auto& { return o.penalty; }, "penalty lambda in the first iteration")
        .in(above(0));
    f.add(
         "penalty_growth", [](O & o) -> auto& { return o.growth; },
         "exponent of lambda's growth: lambda grows as (k+1)^growth")
        .in(at_least(0));
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

F2sa::F2sa(const F2saOptions& options) : Algorithm(options.outer), options_(options) { options_.validate(); }

double F2sa::penalty(int64_t iteration) const {
  return options_.penalty * std::pow(static_cast<double>(iteration) + 1, options_.growth);
}

void F2sa::begin(AlgorithmState& state) const { state.memory["z"] = state.inner.w; }

InnerSolution F2sa::inner_solution(Oracle& /*oracle*/, const AlgorithmState& state) const {
  return {.w = state.memory.at("z")};
}

IterationSummary F2sa::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const double lambda = penalty(state.iteration);
  Tensor& w = state.inner.w;
  Tensor& z = state.memory.at("z");
  for (int64_t t = 0; t < options_.inner_steps; ++t) {
    const Batch batch = streams.inner("steps");
    const Tensor of_g = oracle.inner_gradient(w, state.x, batch);
    const Tensor of_f = oracle.outer_gradients(w, state.x, streams.outer("steps")).w;
    const double rate = options_.inner_rate * options_.schedule.factor(state.inner.step);
    z = descend(z, oracle.inner_gradient(z, state.x, batch), rate);
    w = descend(w, at::add(of_f, of_g, lambda), rate / (1 + lambda));
    ++state.inner.step;
  }
  const OuterGradients outer_at = oracle.outer_gradients(w, state.x, streams.outer("loss"));
  const Batch batch = streams.inner("value");
  const Tensor value =
      oracle.inner_gradient_in_outer(w, state.x, batch) - oracle.inner_gradient_in_outer(z, state.x, batch);
  const Tensor direction = at::add(outer_at.x, value, lambda);
  state.x = outer_step(oracle, state.x, direction, state.outer);
  return {.direction = direction, .outer_loss = outer_at.loss, .status = Status::ok};
}

}  // namespace bilevel
