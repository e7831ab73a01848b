// What the estimators are measured against. Three kinds of problem: the inner one can be solved; it cannot;
// only the steps taken count.
#include "bilevel/check/diagnoser.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

#include "bilevel/check/references.h"

namespace bilevel::diagnosis {
namespace {

constexpr double inner_share = 0.5;  // of the accuracy, left to an inner problem that is not quite solved
constexpr int64_t state_limit = int64_t{1} << 30;  // bytes of iterates that a sweep over truncated may keep

}  // namespace

// Whether the inner problem can be solved and has positive curvature there.
bool Diagnoser::find_solution() {
  Tensor from = start_;
  // Where there are several solutions, the one that the inner loop goes to.
  if (!named_.convex) {
    from = loop_end();
    const Spectrum there = spectrum_at(from);
    if (!positive(there)) {
      result_.reference_why =
          fmt::format("the smallest curvature where the inner loop ends is {:.3g}", there.smallest);
      return false;
    }
  }
  say("the exact hypergradient: solving the inner problem by Newton's method");
  const InnerSolveOptions limits{.iterations = 100, .products = newton_share * options_.calls_per_method};
  ImplicitReference reference = implicit_reference(oracle_, x_, from, {}, limits);
  if (!reference.value.defined()) {
    result_.reference_why = reference.why;
    return false;
  }
  const InnerPoint solution = point_at(reference.inner.w);
  if (!positive(solution.spectrum)) {
    result_.reference_why = fmt::format("the smallest curvature at the solved inner problem is {:.3g}",
                                        solution.spectrum.smallest);
    return false;
  }
  result_.solution = solution;
  implicit_ = reference.value;
  ask_another(reference.inner.w);
  another_implicit_ = another_implicit(reference.inner.w, solution.spectrum);
  return true;
}

void Diagnoser::ask_another(const Tensor& w) {
  another_ = std::make_unique<WithLinearOuter>(
      with_random_outer(*named_.problem, oracle_.outer_gradients(w, x_, Batch{}), options_.seed));
  another_oracle_ = std::make_unique<Oracle>(*another_);
}

// To a hundredth of the accuracy, whatever the condition number makes of a residual.
Tensor Diagnoser::another_implicit(const Tensor& w, const Spectrum& inverted) {
  EstimatorSettings settings;
  settings.curvature = options_.settings.curvature;
  settings.terms = inverse_share * options_.calls_per_method;
  settings.relative_tolerance = std::max(0.01 * options_.accuracy / inverted.condition_number(),
                                         start_.scalar_type() == at::kDouble ? 1e-12 : 1e-6);
  Trajectory here = standing_at(make_inner_optimizer(inner_)->start(w));
  const Hypergradient h =
      make_estimator("cg", settings)->estimate(*another_oracle_, {.x = x_, .inner = here});
  return h.status == Status::converged ? h.value : Tensor();
}

int64_t Diagnoser::calls() const {
  return oracle_calls(oracle_.counts()) + (another_oracle_ ? oracle_calls(another_oracle_->counts()) : 0);
}

// After the problem's own T, at a rate that the curvature at the start allows.
Tensor Diagnoser::loop_end() {
  const double safe = make_inner_optimizer(inner_)->largest_safe_rate(result_.start.spectrum.largest);
  if (!options_.given.rate && inner_.rate >= safe) inner_.rate = safe / 2;
  say(fmt::format("inner loop, {} steps", inner_.steps));
  return state_at(inner_.steps).w;
}

// Everything is measured against the exact hypergradient.
void Diagnoser::diagnose_solution() {
  result_.reference = ReferenceKind::solution;
  const Spectrum& a = result_.start.spectrum;
  const Spectrum& b = result_.solution->spectrum;
  const double largest = std::max(a.largest, b.largest);
  const double smallest = positive(a) ? std::min(a.smallest, b.smallest) : b.smallest;
  const double elsewhere = named_.rate_limit > 0 ? 1 / named_.rate_limit : 0;
  const double farthest = named_.largest_curvature > 0 ? named_.largest_curvature : named_.growth * largest;
  inner_ = plan_inner(inner_, options_.given, smallest, std::max(largest, elsewhere), farthest);
  states_.clear();
  set_rates(smallest, largest);
  result_.inner_error = none;
  result_.end = result_.start;
  if (result_.unsafe_rate) return;  // there is nothing to measure along steps that diverge
  find_steps();
  result_.end = point_at(state_at(inner_.steps).w);
  unrolled_ = implicit_;
  another_unrolled_ = another_implicit_;
  for (const Method& row : methods_) diagnose_method(row);
}

// T whose unsolvedness costs a share of the accuracy, by nearly exact inverses along the loop.
void Diagnoser::find_steps() {
  say("how many inner steps");
  const int64_t budget = calls() + loop_share * options_.calls_per_method;
  const double target = inner_share * options_.accuracy;
  Tensor solution, another_solution;
  const auto error_of = [&](Oracle& oracle, int64_t t, const Tensor& reference, Tensor& warm) {
    EstimatorSettings settings;
    settings.terms = 10000;
    settings.relative_tolerance =
        std::max(5e-3 * options_.accuracy, start_.scalar_type() == at::kDouble ? 1e-12 : 1e-6);
    Trajectory here = standing_at(state_at(t));
    HypergradientRequest request{.x = x_, .inner = here};
    request.warm_start = warm;
    const Hypergradient h = make_estimator("cg", settings)->estimate(oracle, request);
    if (&oracle == &oracle_ && !warm.defined()) inverse_counts_ = h.counts;
    if (h.solution.defined()) warm = h.solution;
    return relative_error(h.value, reference);
  };
  const auto error_at = [&](int64_t t) {
    const double error = error_of(oracle_, t, implicit_, solution);
    if (!(error <= target) || !another_implicit_.defined()) return error;
    return std::fmax(error, error_of(*another_oracle_, t, another_implicit_, another_solution));
  };
  if (options_.given.steps) {
    result_.inner_error = error_at(inner_.steps);
    result_.inner_basis = Basis::measured;
    return;
  }
  const LeastTerms found = least_terms(
      error_at, {.target = target, .contraction = result_.contraction, .patient_until = expected_steps()},
      [&](int64_t) { return calls() < budget; });
  inner_.steps = found.terms;
  result_.inner_error = found.error;
  result_.inner_basis = found.extrapolated ? Basis::extrapolated : Basis::measured;
}

// No one knows the exact hypergradient: the formula is measured where the loop ends, on a curvature that
// can be inverted, and what goes through the steps against the steps.
void Diagnoser::diagnose_iterate() {
  const Tensor w = loop_end();
  result_.end = point_at(w);
  const Spectrum& s = result_.end.spectrum;
  result_.negative_curvature = negative(s);
  set_rates(s.smallest, std::max(s.largest, result_.start.spectrum.largest));
  result_.inner_error = none;
  choose_curvature(w);
  ask_another(w);
  find_iterate_reference(w);
  find_unrolled_reference();
  for (const Method& row : methods_) diagnose_method(row);
}

bool Diagnoser::has_gauss_newton(const Tensor& w) {
  try {
    oracle_.linearize(w, x_, Batch{})->gauss_newton(at::ones_like(w));
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

// The Hessian where it is positive; else the Gauss-Newton matrix, which is, with as much damping as the
// Hessian is negative: what that matrix leaves out has this size.
void Diagnoser::choose_curvature(const Tensor& w) {
  CurvatureOptions& c = options_.settings.curvature;
  if (!options_.curvature_given && !positive(result_.end.spectrum)) {
    c.kind = "hessian";
    if (!has_gauss_newton(w)) {
      result_.curvature = c;
      return;
    }
    c.kind = "gauss-newton";
    c.damping = 0;
    const double largest = spectrum_at(w, c).largest;
    const double missing = std::max(-result_.end.spectrum.smallest, 0.0);
    const double wanted = std::max({named_.check.damping, missing, 1e-3 * largest});
    c.damping = std::stod(fmt::format("{:.2g}", wanted));
  }
  const Spectrum s = spectrum_at(w, c);
  inverted_ = s;
  if (positive(s)) {
    invertible_ = true;
    if (!(c.kind == "hessian" && c.damping == 0)) {
      options_.settings.linear_rate = std::stod(fmt::format("{:.3g}", 0.99 / s.largest));
    }
  }
  result_.curvature = c;
}

void Diagnoser::find_iterate_reference(const Tensor& w) {
  if (!invertible_) return;
  say("the implicit formula where the inner loop ends");
  EstimatorSettings settings;
  settings.curvature = options_.settings.curvature;
  settings.terms = inverse_share * options_.calls_per_method;
  settings.relative_tolerance =
      std::max(1e-3 * options_.accuracy, start_.scalar_type() == at::kDouble ? 1e-12 : 1e-6);
  Trajectory here = standing_at(make_inner_optimizer(inner_)->start(w));
  const Hypergradient h = make_estimator("cg", settings)->estimate(oracle_, {.x = x_, .inner = here});
  if (h.status != Status::converged) {
    result_.reference_why += fmt::format("{}conjugate gradients on the {} at the iterate ended as {}",
                                         result_.reference_why.empty() ? "" : "; ",
                                         options_.settings.curvature.kind, name_of(h.status));
    return;
  }
  result_.reference = ReferenceKind::iterate;
  implicit_ = h.value;
  another_implicit_ = another_implicit(w, inverted_);
}

void Diagnoser::find_unrolled_reference() {
  const int64_t steps = inner_.steps;
  const bool affordable = 3 * steps <= loop_share * options_.calls_per_method;
  if (!affordable || steps * state_bytes() > state_limit) return;
  say("back-propagation through all steps");
  const auto reverse = make_estimator("reverse", options_.settings);
  unrolled_ = run_from_start(oracle_, *reverse, steps).value;
  another_unrolled_ = run_from_start(*another_oracle_, *reverse, steps).value;
}

// A learned start or rate: the derivative of the steps taken is the exact one.
void Diagnoser::diagnose_steps() {
  result_.reference_why =
      "the start or the rate is part of x, so the derivative of the steps taken is what counts";
  const Spectrum& s = result_.start.spectrum;
  set_rates(s.smallest, s.largest);
  ask_another(start_);
  find_unrolled_reference();
  if (unrolled_.defined()) result_.reference = ReferenceKind::unrolled;
  result_.inner_error = none;
  InnerLoop run;
  run.options = inner_;
  result_.end = point_at(run_inner(oracle_, x_, start_, run).final.w);
  result_.negative_curvature = negative(result_.end.spectrum);
  for (const Method& row : methods_) diagnose_method(row);
}

}  // namespace bilevel::diagnosis
