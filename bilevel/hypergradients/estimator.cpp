#include "bilevel/hypergradients/estimator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <stdexcept>

#include "bilevel/hypergradients/bound.h"

namespace bilevel {

std::vector<int64_t> HypergradientEstimator::keeps(int64_t /*steps*/, int64_t /*state_bytes*/) const {
  return {};
}

double HypergradientEstimator::theory(const TheoryInputs& /*inputs*/) const {
  return std::numeric_limits<double>::quiet_NaN();
}

Hypergradient HypergradientEstimator::estimate(Oracle& oracle, const HypergradientRequest& request) const {
  if (!request.inner.final.w.defined() || !request.inner.optimizer) {
    throw std::invalid_argument(fmt::format("{}: the inner loop has not been run", name()));
  }
  if (!request.x.defined()) throw std::invalid_argument(fmt::format("{}: x is an undefined tensor", name()));
  if (request.warm_start.defined() && !request.warm_start.sizes().equals(request.inner.final.w.sizes())) {
    throw std::invalid_argument(fmt::format("{}: warm_start has {} elements, but w has {}", name(),
                                            request.warm_start.numel(), request.inner.final.w.numel()));
  }
  const auto begin = std::chrono::steady_clock::now();
  const OracleCounts before = oracle.counts();
  Hypergradient result = compute(oracle, request);
  // A NaN is reported, never replaced: a zero in its place would look like a stationary point.
  if (!oracle.finite().all_finite(result.value)) result.status = Status::not_finite;
  result.counts = oracle.counts() - before;
  result.inner_gradient_norm = request.inner.gradient_norm;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (request.with_bound) {
    add_error_bound(oracle, request, result);
    result.bound_counts = oracle.counts() - before - result.counts;
  }
  return result;
}

Hypergradient estimate_from(const OuterGradients& outer) {
  Hypergradient result;
  result.direct = outer.x;
  result.outer_loss = outer.loss;
  result.p = outer.w;
  return result;
}

InnerAndHypergradient hypergradient_at(Oracle& oracle, const Tensor& x, const Tensor& start,
                                       const InnerOptions& options, const HypergradientEstimator& estimator,
                                       bool with_bound) {
  const auto optimizer = make_inner_optimizer(options);
  InnerLoop run;
  run.options = options;
  // The state's size is that of the start that will be used; where there is none the inner run says so.
  const Tensor learned = x.defined() ? oracle.problem().inner_start(x) : Tensor();
  const Tensor& first = learned.defined() ? learned : start;
  if (first.defined()) {
    const int64_t state_bytes = static_cast<int64_t>(first.nbytes()) * (1 + optimizer->buffer_count());
    run.keep = estimator.keeps(options.steps, state_bytes);
  }
  InnerAndHypergradient result;
  result.inner = run_inner(oracle, x, start, run);
  HypergradientRequest request{.x = x, .inner = result.inner, .with_bound = with_bound};
  request.release = [&](int64_t t) { result.inner.kept.erase(t); };
  result.hypergradient = estimator.estimate(oracle, request);
  return result;
}

const InnerState& kept_state(const Trajectory& trajectory, int64_t t, std::string_view estimator) {
  const auto found = trajectory.kept.find(t);
  if (found == trajectory.kept.end()) {
    throw std::invalid_argument(
        fmt::format("{} needs the inner state before step {}, which the trajectory did not keep: pass "
                    "keeps() to the inner run",
                    estimator, t));
  }
  return found->second;
}

int64_t bytes_of(const Trajectory& trajectory, const std::vector<int64_t>& states,
                 std::string_view estimator) {
  int64_t total = 0;
  for (const int64_t t : states) total += kept_state(trajectory, t, estimator).bytes();
  return total;
}

}  // namespace bilevel
