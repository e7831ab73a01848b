#include "bilevel/algorithms/double_loop.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"

namespace bilevel {

void DoubleLoopOptions::validate() const {
  inner.validate();
  require_nonnegative(name, "growth", growth);
  require_at_least(name, "hessian_batches", hessian_batches, 1);
  require(!one_batch || hessian_batches == 1, name + ": hessian_batches", hessian_batches,
          "1 with one_batch");
}

DoubleLoop::DoubleLoop(const DoubleLoopOptions& options,
                       std::unique_ptr<const HypergradientEstimator> estimator)
    : Algorithm(options.outer),
      options_(options),
      estimator_(std::move(estimator)),
      optimizer_(make_inner_optimizer(options.inner)) {
  options_.validate();
  if (!estimator_) throw std::invalid_argument(fmt::format("{}: the estimator is null", options_.name));
}

int64_t DoubleLoop::inner_steps(int64_t iteration) const {
  if (options_.growth == 0) return options_.inner.steps;
  return static_cast<int64_t>(
      std::ceil(options_.growth * std::pow(static_cast<double>(iteration) + 1, 0.25)));
}

bool DoubleLoop::unrolls() const { return !estimator_->implicit(); }

void DoubleLoop::begin(AlgorithmState& state) const {
  state.inner = optimizer_->start(state.inner.w);
  if (!options_.warm_start_inner) state.memory["start"] = state.inner.w;
}

Trajectory DoubleLoop::run(Oracle& oracle, const AlgorithmState& state, Streams& streams) const {
  InnerLoop run;
  run.options = options_.inner;
  run.options.steps = inner_steps(state.iteration);
  run.batches = [&streams](int64_t) { return streams.inner("steps"); };
  run.keep = estimator_->keeps(run.options.steps, state.inner.bytes());
  run.measure_gradient = false;  // it would cost an inner gradient that the algorithm does not use
  // A learned start begins anew every time: that is what is learned.
  if (options_.warm_start_inner && !oracle.problem().inner_start(state.x).defined()) {
    return continue_inner(oracle, state.x, state.inner, run);
  }
  const auto start = state.memory.find("start");
  return run_inner(oracle, state.x, start == state.memory.end() ? state.inner.w : start->second, run);
}

IterationSummary DoubleLoop::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  Trajectory inner = run(oracle, state, streams);
  state.inner = inner.final;
  HypergradientRequest request{.x = state.x, .inner = inner};
  request.outer = streams.outer("loss");
  for (int64_t k = 0; k < options_.hessian_batches; ++k) request.hessian.push_back(streams.inner("hessian"));
  request.cross = options_.one_batch ? request.hessian.front() : streams.inner("cross");
  request.release = [&inner](int64_t t) { inner.kept.erase(t); };
  if (options_.warm_start_linear) request.warm_start = state.v;
  request.with_bound = options_.with_bound;
  const Hypergradient estimate = estimator_->estimate(oracle, request);
  if (options_.warm_start_linear) state.v = estimate.solution;
  state.x = outer_step(oracle, state.x, estimate.value, state.outer);
  return {.direction = estimate.value,
          .outer_loss = estimate.outer_loss,
          .status = estimate.status,
          .needs_positive = estimator_->needs_positive_curvature(),
          .direct = estimate.direct,
          .bound = estimate.bound};
}

}  // namespace bilevel
