// The facts about the inner problem that all else rests on: what one call costs, how the curvature looks,
// where the inner loop stands after t steps.
#include "bilevel/check/diagnoser.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iterator>

namespace bilevel::diagnosis {
namespace {

constexpr int64_t lanczos_products = 1000;  // most of one spectrum

template <typename Call>
double timed(Call call) {
  call();  // the first one pays for memory and caches
  const auto begin = Clock::now();
  const std::clock_t cpu = std::clock();
  call();
  // On a busy machine the clock on the wall counts other people's work.
  return std::min(since(begin), static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
}

}  // namespace

void Diagnoser::time_units() {
  UnitSeconds& u = result_.unit;
  const auto linear = oracle_.linearize(start_, x_, Batch{});
  const Tensor v = at::ones_like(start_);
  u.inner_gradient = timed([&] { oracle_.inner_gradient(start_, x_, Batch{}); });
  u.outer_gradient = timed([&] { oracle_.outer_gradients(start_, x_, Batch{}); });
  u.hessian = timed([&] { linear->hessian(v); });
  if (named_.problem->inner_loss_uses_outer()) u.cross = timed([&] { linear->cross(v); });
}

Spectrum Diagnoser::spectrum_at(const Tensor& w, const CurvatureOptions& curvature) {
  const auto linear = oracle_.linearize(w, x_, Batch{});
  const MatrixProduct product = [&](const Tensor& v) {
    const Tensor hv = curvature.kind == "gauss-newton" ? linear->gauss_newton(v) : linear->hessian(v);
    return curvature.damping > 0 ? at::add(hv, v, curvature.damping) : hv;
  };
  SpectrumOptions lanczos;
  lanczos.seed = options_.seed;
  // The ends to a few digits: a rate or a K is not known better.
  if (w.numel() > 512) lanczos.relative_tolerance = 1e-4;
  lanczos.max_products = lanczos_products;
  return extreme_eigenvalues(product, w.numel(), w.options(), lanczos);
}

InnerPoint Diagnoser::point_at(const Tensor& w) {
  InnerPoint point;
  point.spectrum = spectrum_at(w);
  point.gradient_norm = length(oracle_.inner_gradient(w, x_, Batch{}));
  point.distance = positive(point.spectrum) ? point.gradient_norm / point.spectrum.smallest : none;
  return point;
}

// Lanczos's own tolerance decides what is still zero.
double Diagnoser::zero(const Spectrum& s) const {
  const double relative = start_.scalar_type() == at::kDouble ? 1e-9 : 1e-5;
  return std::max(s.rounding, relative * std::max(std::abs(s.largest), std::abs(s.smallest)));
}

// The state after t steps, from the nearest one that was met before.
InnerState Diagnoser::state_at(int64_t t) {
  if (states_.empty()) states_[0] = make_inner_optimizer(inner_)->start(start_);
  auto nearest = std::prev(states_.upper_bound(t));
  if (nearest->first == t) return nearest->second;
  InnerLoop run;
  run.options = inner_;
  run.options.steps = t - nearest->first;
  run.measure_gradient = false;
  const InnerState state = continue_inner(oracle_, x_, nearest->second, run).final;
  // A bisection comes back to the last few only.
  if (states_.size() > 12) states_.erase(std::next(states_.begin()));
  states_[t] = state;
  return state;
}

Trajectory Diagnoser::standing_at(const InnerState& state) const {
  Trajectory here;
  here.options = inner_;
  here.optimizer = make_inner_optimizer(inner_);
  here.final = state;
  return here;
}

int64_t Diagnoser::state_bytes() const {
  return static_cast<int64_t>(start_.nbytes()) * (1 + make_inner_optimizer(inner_)->buffer_count());
}

void Diagnoser::set_rates(double smallest, double largest) {
  result_.smallest_curvature = smallest;
  result_.largest_curvature = largest;
  result_.largest_safe_rate = make_inner_optimizer(inner_)->largest_safe_rate(largest);
  result_.unsafe_rate =
      options_.given.rate && !oracle_.inner_rate(x_).defined() && inner_.rate >= result_.largest_safe_rate;
  result_.best_rate = best_inner_rate(inner_, smallest, largest);
  result_.contraction = step_contraction(inner_, smallest, largest);
  InnerOptions best = inner_;
  best.rate = result_.best_rate;
  result_.best_contraction = step_contraction(best, smallest, largest);
  result_.steps_predicted = steps_to_shrink(result_.contraction, options_.accuracy);
}

}  // namespace bilevel::diagnosis
