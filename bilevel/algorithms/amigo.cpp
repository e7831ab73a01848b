#include "bilevel/algorithms/amigo.h"

#include <ATen/ATen.h>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/sampled_hypergradient.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

// The residuals of one matrix fall from step to step or it diverges; those of a new batch each have noise,
// and begin at nothing but noise once v is warm.
bool residuals_grow(const LinearResult& result) {
  constexpr double beyond_noise = 10;
  return !(result.residuals.back() <= beyond_noise * result.residuals.front());
}

}  // namespace

void AmigoOptions::validate() const {
  require_at_least("amigo", "inner_steps", inner.steps, 1);
  require_at_least("amigo", "terms", linear_steps, 1);
  require_positive("amigo", "inner_rate", inner.rate);
  inner.validate();
  linear_schedule.validate();
  if (linear_rate != 0) require_positive("amigo", "linear_rate", linear_rate);
  curvature.validate();
}

const Fields<AmigoOptions>& AmigoOptions::fields() {
  static const Fields<AmigoOptions> table = [] {
    using O = AmigoOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.inner; }, inner_fields());
    add_terms(
        f, [](O & o) -> auto& { return o.linear_steps; });
    add_linear_rate(
        f, [](O & o) -> auto& { return o.linear_rate; });
    f.add(
        "linear_schedule", [](O & o) -> auto& { return o.linear_schedule; }, schedule_words);
    f.include(
        [](O & o) -> auto& { return o.curvature; }, CurvatureOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Amigo::Amigo(const AmigoOptions& options)
    : Algorithm(options.outer), options_(options), optimizer_(make_inner_optimizer(options.inner)) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner.rate;
}

void Amigo::begin(AlgorithmState& state) const {
  state.inner = optimizer_->start(state.inner.w);
  state.v = at::zeros_like(state.inner.w);
}

IterationSummary Amigo::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  state.inner = warm_inner_steps(oracle, state, streams, options_.inner).final;
  const bool noisy = streams.options().inner_batch > 0;
  const HypergradientSample sample = draw_hypergradient_sample(streams, options_.linear_steps);
  const double rate = options_.linear_rate * options_.linear_schedule.factor(state.iteration);
  const FixedPointOptions steps{.steps = options_.linear_steps, .rate = rate, .warm_start = state.v};
  const Hypergradient estimate =
      hypergradient_on(oracle, state.inner.w, state.x, sample, options_.curvature,
                       [&steps, noisy](CurvatureProducts& products, const Tensor& p) {
                         LinearResult result = fixed_point(
                             [&](const Tensor& v, int64_t k) { return products(v, k); }, p, steps);
                         if (noisy && result.status == Status::diverged && !residuals_grow(result))
                           result.status = Status::ok;
                         return result;
                       });
  state.v = estimate.solution;
  state.x = outer_step(oracle, state.x, estimate.value, state.outer);
  return {.direction = estimate.value,
          .outer_loss = estimate.outer_loss,
          .status = estimate.status,
          .needs_positive = true};
}

}  // namespace bilevel
