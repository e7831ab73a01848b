#include "bilevel/algorithms/ttsa.h"

#include <fmt/format.h>

#include <stdexcept>

namespace bilevel {
namespace {

Schedule falling(double exponent) { return {.kind = ScheduleKind::power, .exponent = exponent}; }

OuterOptions outer_of(const TtsaOptions& options) {
  options.validate();
  OuterOptions outer = options.outer;
  outer.schedule = falling(options.outer_exponent);
  return outer;
}

}  // namespace

void TtsaOptions::validate() const {
  inner.validate();
  series.validate("ttsa");
  falling(inner_exponent).validate();
  falling(outer_exponent).validate();
  if (outer_exponent < inner_exponent) {
    throw std::invalid_argument(
        fmt::format("ttsa: outer_exponent = {} must be at least inner_exponent = {}, or w cannot follow x",
                    outer_exponent, inner_exponent));
  }
}

Ttsa::Ttsa(const TtsaOptions& options)
    : Algorithm(outer_of(options)), options_(options), optimizer_(make_inner_optimizer(options.inner)) {
  options_.inner.steps = 1;
  options_.inner.schedule = falling(options_.inner_exponent);
}

void Ttsa::begin(AlgorithmState& state) const { state.inner = optimizer_->start(state.inner.w); }

IterationSummary Ttsa::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const int64_t size = sample_size(options_.series, streams.options().inner_batch);
  Trajectory inner = warm_inner_steps(oracle, state, streams, options_.inner, size);
  state.inner = inner.final;
  const Hypergradient estimate = randomized_series(oracle, state.x, inner, streams, options_.series);
  state.x = outer().step(state.x, estimate.value, state.outer);
  return {.direction = estimate.value, .outer_loss = estimate.outer_loss, .status = estimate.status};
}

}  // namespace bilevel
