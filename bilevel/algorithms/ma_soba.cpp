#include "bilevel/algorithms/ma_soba.h"

#include <ATen/ATen.h>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/recursive_momentum.h"
#include "bilevel/algorithms/soba.h"
#include "bilevel/core/require.h"

namespace bilevel {

void MaSobaOptions::validate() const {
  require_positive("ma-soba", "inner_rate", inner_rate);
  if (linear_rate != 0) require_positive("ma-soba", "linear_rate", linear_rate);
  inner_schedule.validate();
  linear_schedule.validate();
  curvature.validate();
  require_averaging("ma-soba", averaging);
}

const Fields<MaSobaOptions>& MaSobaOptions::fields() {
  static const Fields<MaSobaOptions> table = [] {
    using O = MaSobaOptions;
    Fields<O> f;
    add_single_loop_fields(f);
    f.add(
         "averaging", [](O & o) -> auto& { return o.averaging; },
         "weight of the newest sample in the average")
        .in(above(0, 1));
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

MaSoba::MaSoba(const MaSobaOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner_rate;
}

void MaSoba::begin(AlgorithmState& state) const { state.v = at::zeros_like(state.inner.w); }

IterationSummary MaSoba::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const Batch inner = streams.inner("sample"), outer_batch = streams.outer("sample");
  const SobaDirections along = soba_directions(oracle, state, inner, outer_batch, options_.curvature);
  Tensor& average = state.memory["average"];
  average =
      average.defined() ? at::add((1 - options_.averaging) * average, along.x, options_.averaging) : along.x;
  state.inner.w =
      descend(state.inner.w, along.w, options_.inner_rate * options_.inner_schedule.factor(state.inner.step));
  ++state.inner.step;
  state.v =
      descend(state.v, along.v, options_.linear_rate * options_.linear_schedule.factor(state.iteration));
  state.x = outer_step(oracle, state.x, average, state.outer);
  return {.direction = average, .outer_loss = along.outer_loss, .status = Status::ok};
}

}  // namespace bilevel
