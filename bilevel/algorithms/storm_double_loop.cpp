#include "bilevel/algorithms/storm_double_loop.h"

#include <utility>

#include "bilevel/algorithms/linear_solves.h"
#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/storm.h"

namespace bilevel {
namespace {

StormOptions storm_of(const StormDoubleLoopOptions& o) {
  return {.inner_rate = o.inner.rate,
          .momentum_decay = o.momentum_decay,
          .schedule = o.schedule,
          .outer = o.outer};
}

OuterOptions outer_of(const StormDoubleLoopOptions& options) {
  options.validate();
  OuterOptions outer = options.outer;
  if (outer.optimizer == "sgd") outer.schedule = options.schedule;
  return outer;
}

}  // namespace

void StormDoubleLoopOptions::validate() const {
  inner.validate();
  storm_of(*this).validate("storm-double-loop");
}

const Fields<StormDoubleLoopOptions>& StormDoubleLoopOptions::fields() {
  static const Fields<StormDoubleLoopOptions> table = [] {
    using O = StormDoubleLoopOptions;
    Fields<O> f;
    f.add(
         "method", [](O & o) -> auto& { return o.method; },
         "estimator of the hypergradient; `bilevel list` shows them")
        .first();
    f.include(
        [](O & o) -> auto& { return o.inner; }, inner_fields());
    f.include(
        [](O & o) -> auto& { return o.estimator; }, EstimatorSettings::fields());
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

StormDoubleLoop::StormDoubleLoop(const StormDoubleLoopOptions& options)
    : Algorithm(outer_of(options)),
      options_(options),
      estimator_(make_estimator(options.method, options.estimator)) {}

void StormDoubleLoop::begin(AlgorithmState& state) const { state.memory["start"] = state.inner.w; }

StormDoubleLoop::Sample StormDoubleLoop::draw(Streams& streams) const {
  Sample sample;
  for (int64_t t = 0; t < options_.inner.steps; ++t) sample.steps.push_back(streams.inner("steps"));
  sample.outer = streams.outer("loss");
  sample.hessian = streams.inner("hessian");
  sample.cross = streams.inner("cross");
  return sample;
}

InnerAndHypergradient StormDoubleLoop::evaluate(Oracle& oracle, const Tensor& x, const Tensor& start,
                                                const Sample& sample) const {
  InnerLoop run;
  run.options = options_.inner;
  run.batches = [&sample](int64_t t) { return sample.steps.at(static_cast<size_t>(t)); };
  run.keep = estimator_->keeps(run.options.steps, static_cast<int64_t>(start.nbytes()));
  run.measure_gradient = false;  // it would cost an inner gradient that the algorithm does not use
  InnerAndHypergradient found{run_inner(oracle, x, start, run), {}};
  HypergradientRequest request{.x = x, .inner = found.inner};
  request.outer = sample.outer;
  request.hessian = {sample.hessian};
  request.cross = sample.cross;
  request.release = [&found](int64_t t) { found.inner.kept.erase(t); };
  found.hypergradient = estimator_->estimate(oracle, request);
  return found;
}

IterationSummary StormDoubleLoop::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const double factor = options_.schedule.factor(state.iteration);
  const Tensor x = state.x, start = state.memory.at("start");
  Status status = Status::not_run;  // the worst of all solves that the momentum is made of
  if (!state.memory.contains("momentum")) {
    const Hypergradient first = evaluate(oracle, x, start, draw(streams)).hypergradient;
    state.memory["momentum"] = first.value;
    status = first.status;
  }
  const Tensor momentum = state.memory.at("momentum");
  state.x = projected(oracle.problem(), outer_step(oracle, x, momentum, state.outer));
  const Sample sample = draw(streams);
  const InnerAndHypergradient newer = evaluate(oracle, state.x, start, sample);
  const InnerAndHypergradient older = evaluate(oracle, x, start, sample);
  state.inner = newer.inner.final;
  state.memory["momentum"] = storm_momentum(momentum, newer.hypergradient.value, older.hypergradient.value,
                                            options_.momentum_decay * factor);
  const Hypergradient& newest = newer.hypergradient;
  status = worse(status, worse(newest.status, older.hypergradient.status));
  return {.direction = state.memory.at("momentum"),
          .outer_loss = newest.outer_loss,
          .status = status,
          .needs_positive = estimator_->needs_positive_curvature()};
}

}  // namespace bilevel
