#include "bilevel/hypergradients/general.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "bilevel/hypergradients/reverse.h"

namespace bilevel {
namespace {

void check_length(std::string_view name, size_t found, size_t expected) {
  if (found != expected) {
    throw std::invalid_argument(
        fmt::format("the general form needs {} {}, but {} were given", expected, name, found));
  }
}

Batch batch_of(const std::vector<Batch>& batches, size_t k) { return batches.empty() ? Batch{} : batches[k]; }

std::vector<int64_t> all_steps(int64_t steps) {
  std::vector<int64_t> all(static_cast<size_t>(steps));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Tensor scale(const Tensor& t, const StepRate& beta) {
  return beta.learned.defined() ? t * beta.learned : t * beta.value;
}

struct Sequences {
  std::vector<Tensor> points;   // w_0 .. w_{T-1}
  std::vector<StepRate> rates;  // of the step that leaves w_k
};

Sequences inner_sequences(const Trajectory& inner, std::string_view estimator) {
  Sequences result;
  for (int64_t t = 0; t < inner.steps(); ++t) {
    const InnerState& state = kept_state(inner, t, estimator);
    result.points.push_back(state.w);
    result.rates.push_back(inner.rate(state));
  }
  return result;
}

}  // namespace

Tensor general_backward_sum(Oracle& oracle, const Tensor& x, const std::vector<Tensor>& points,
                            const Tensor& p, const std::vector<StepRate>& betas,
                            const std::vector<Batch>& batches, Tensor* gathered) {
  check_length("points", points.size(), betas.size());
  if (!batches.empty()) check_length("batches", batches.size(), betas.size());
  const bool through_x = oracle.problem().inner_loss_uses_outer();
  Tensor sum = at::zeros_like(x);
  Tensor a = p;
  if (gathered != nullptr) *gathered = at::zeros_like(p);
  for (size_t k = betas.size(); k-- > 0;) {
    const auto linear = oracle.linearize(points[k], x, batch_of(batches, k));
    const Tensor scaled = scale(a, betas[k]);
    if (gathered != nullptr) *gathered = *gathered + scaled;
    if (k > 0 && through_x) {
      const auto [h, c] = linear->hessian_and_cross(scaled);
      sum = sum + c;
      a = a - h;
    } else if (k > 0) {
      a = a - linear->hessian(scaled);
    } else if (through_x) {
      sum = sum + linear->cross(scaled);
    }
  }
  return sum;
}

Tensor general_forward_sum(Oracle& oracle, const Tensor& x, const std::vector<Tensor>& points,
                           const std::vector<Tensor>& ps, const std::vector<StepRate>& betas,
                           const std::vector<Batch>& batches, Tensor* solution) {
  const size_t count = betas.size();
  check_length("points", points.size(), count + 1);
  check_length("vectors p", ps.size(), count);
  if (!batches.empty()) check_length("batches", batches.size(), count + 1);
  Tensor v = at::zeros_like(points[0]);
  for (size_t k = 0; k < count; ++k) {
    if (k == 0) {
      v = scale(ps[0], betas[0]);
      continue;
    }
    const auto linear = oracle.linearize(points[k], x, batch_of(batches, k));
    v = v + scale(ps[k] - linear->hessian(v), betas[k]);
  }
  if (solution != nullptr) *solution = v;
  if (count == 0 || !oracle.problem().inner_loss_uses_outer()) return at::zeros_like(x);
  return oracle.linearize(points[count], x, batch_of(batches, count))->cross(v);
}

std::vector<int64_t> GeneralBackward::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  return all_steps(steps);
}

Hypergradient GeneralBackward::compute(Oracle& oracle, const HypergradientRequest& request) const {
  const Trajectory& inner = request.inner;
  const Sequences sequences = inner_sequences(inner, name());
  const auto outer = oracle.outer_gradients(inner.final.w, request.x, request.outer);
  Hypergradient result = estimate_from(outer);
  result.value =
      outer.x - general_backward_sum(oracle, request.x, sequences.points, outer.w, sequences.rates,
                                     inner.batches, request.with_bound ? &result.gathered : nullptr);
  result.status = Status::ok;
  result.bytes_kept = bytes_of(inner, keeps(inner.steps(), 0), name());
  return result;
}

std::optional<StepsCost> GeneralBackward::cost(const StepsAsked& inner) const {
  StepsCost cost = cost_of_reverse(inner, inner.steps, false);
  cost.counts.inner_gradient = 0;
  return cost;
}

std::vector<int64_t> GeneralForward::keeps(int64_t steps, int64_t /*state_bytes*/) const {
  return all_steps(steps);
}

Hypergradient GeneralForward::compute(Oracle& oracle, const HypergradientRequest& request) const {
  const Trajectory& inner = request.inner;
  Sequences sequences = inner_sequences(inner, name());
  std::vector<Tensor> ps;
  ps.reserve(sequences.points.size());
  for (const Tensor& w : sequences.points)
    ps.push_back(oracle.outer_gradients(w, request.x, request.outer).w);
  const auto outer = oracle.outer_gradients(inner.final.w, request.x, request.outer);
  sequences.points.push_back(inner.final.w);
  std::vector<Batch> batches = inner.batches;
  batches.push_back(request.cross);
  Hypergradient result = estimate_from(outer);
  const Tensor sum = general_forward_sum(oracle, request.x, sequences.points, ps, sequences.rates, batches,
                                         &result.solution);
  result.value = outer.x - sum;
  result.status = Status::ok;
  result.bytes_kept = bytes_of(inner, keeps(inner.steps(), 0), name()) +
                      static_cast<int64_t>(ps.size() * inner.final.w.nbytes());
  return result;
}

std::optional<StepsCost> GeneralForward::cost(const StepsAsked& inner) const {
  StepsCost cost = cost_of_reverse(inner, inner.steps, false);
  cost.counts.inner_gradient = 0;
  cost.counts.outer_gradient += inner.steps;
  cost.counts.cross = std::min<int64_t>(cost.counts.cross, 1);
  cost.bytes += inner.steps * inner.iterate_bytes;
  return cost;
}

}  // namespace bilevel
