#include "bilevel/algorithms/algorithm.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/errors.h"

namespace bilevel {
namespace {

void require_finite(const Algorithm& algorithm, Oracle& oracle, const AlgorithmState& state, const char* what,
                    const Tensor& t, const char* hint) {
  // The norm, not the entries: where it overflows the next loss will.
  if (!t.defined() || oracle.finite().finite_number(t.norm())) return;
  throw NotFiniteError(fmt::format("{}: {} left the finite numbers in iteration {}. {}", algorithm.name(),
                                   what, state.iteration + 1, hint));
}

}  // namespace

Algorithm::Algorithm(const OuterOptions& outer) : outer_(make_outer_optimizer(outer)) {}

AlgorithmState Algorithm::init(const Oracle& oracle, const Tensor& x, const Tensor& w) const {
  const Problem& problem = oracle.problem();
  if (!unrolls() && (problem.inner_start(x).defined() || problem.inner_rate(x).defined())) {
    throw std::invalid_argument(
        fmt::format("{}: the problem learns its inner start or rate, and this algorithm's hypergradient does "
                    "not reach them; use a double loop with reverse, truncated or forward mode",
                    name()));
  }
  AlgorithmState state;
  state.x = x.detach();
  state.inner.w = w.detach();
  state.outer = outer_.init(state.x);
  begin(state);
  return state;
}

IterationSummary Algorithm::step(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  AlgorithmState next = state;
  IterationSummary summary = advance(oracle, next, streams);
  require_finite(*this, oracle, state, "w", next.inner.w, "Lower the inner rate.");
  require_finite(*this, oracle, state, "v, of the linear system,", next.v,
                 "Lower the rate of the linear system.");
  require_finite(*this, oracle, state, "x", next.x, "Lower the outer rate.");
  next.x = projected(oracle.problem(), next.x);
  ++next.iteration;
  state = std::move(next);
  return summary;
}

Tensor Algorithm::outer_step(Oracle& oracle, const Tensor& x, const Tensor& direction,
                             OuterState& state) const {
  return outer_.step(x, direction, state, &oracle.finite());
}

InnerSolution Algorithm::inner_solution(Oracle& /*oracle*/, const AlgorithmState& state) const {
  return {.w = state.inner.w};
}

void Algorithm::begin(AlgorithmState& /*state*/) const {}

Tensor descend(const Tensor& from, const Tensor& direction, double rate) {
  return at::sub(from, direction, rate);
}

Tensor projected(const Problem& problem, const Tensor& x) {
  Tensor inside = x.clone();
  problem.project_outer_(inside);
  return inside;
}

Trajectory warm_inner_steps(Oracle& oracle, const AlgorithmState& state, Streams& streams,
                            const InnerOptions& options, int64_t size) {
  InnerLoop run;
  run.options = options;
  run.batches = [&streams, size](int64_t) { return streams.inner("steps", size); };
  run.measure_gradient = false;  // it would cost an inner gradient that the algorithms do not use
  return continue_inner(oracle, state.x, state.inner, run);
}

}  // namespace bilevel
