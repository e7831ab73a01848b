#include "bilevel/algorithms/darts.h"

#include <memory>
#include <utility>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/hypergradients/one_step.h"

namespace bilevel {
namespace {

OneStepOptions one_step_options(const CurvatureOptions& curvature) {
  curvature.validate();
  return {.difference_cross = curvature.difference_cross, .difference_step = curvature.difference_step};
}

}  // namespace

const Fields<DartsOptions>& DartsOptions::fields() {
  static const Fields<DartsOptions> table = [] {
    using O = DartsOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.inner; }, inner_fields().without({"inner_steps"}));
    f.include(
        [](O & o) -> auto& { return o.curvature; },
        CurvatureOptions::fields().without({"curvature", "damping", "difference_hessian"}));
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Darts::Darts(const DartsOptions& options)
    : Algorithm(options.outer),
      inner_(options.inner),
      first_order_(options.first_order),
      estimator_(std::make_unique<OneStep>(one_step_options(options.curvature))),
      optimizer_(make_inner_optimizer(options.inner)) {
  inner_.steps = 1;
}

void Darts::begin(AlgorithmState& state) const { state.inner = optimizer_->start(state.inner.w); }

Trajectory Darts::one_step(Oracle& oracle, const AlgorithmState& state, const Batch& batch, bool kept) const {
  InnerLoop run;
  run.options = inner_;
  run.batches = [&batch](int64_t) { return batch; };
  if (kept) run.keep = estimator_->keeps(1, state.inner.bytes());
  run.measure_gradient = false;  // it would cost an inner gradient that the algorithm does not use
  return continue_inner(oracle, state.x, state.inner, run);
}

IterationSummary Darts::direction(Oracle& oracle, const AlgorithmState& state, const Batch& inner,
                                  const Batch& outer) const {
  if (first_order_) {
    const OuterGradients here = oracle.outer_gradient_in_outer(state.inner.w, state.x, outer);
    return {.direction = here.x, .outer_loss = here.loss, .status = Status::ok, .direct = here.x};
  }
  Trajectory virtual_step = one_step(oracle, state, inner, true);
  HypergradientRequest request{.x = state.x, .inner = virtual_step};
  request.outer = outer;
  const Hypergradient estimate = estimator_->estimate(oracle, request);
  return {.direction = estimate.value,
          .outer_loss = estimate.outer_loss,
          .status = estimate.status,
          .direct = estimate.direct};
}

IterationSummary Darts::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const Batch batch = streams.inner("steps");
  IterationSummary summary = direction(oracle, state, batch, streams.outer("loss"));
  state.x = projected(oracle.problem(), outer_step(oracle, state.x, summary.direction, state.outer));
  state.inner = one_step(oracle, state, batch, false).final;
  return summary;
}

}  // namespace bilevel
