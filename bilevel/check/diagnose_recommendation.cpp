// Which estimator to take, tried once more with just these settings, and the sentence that says so.
#include "bilevel/check/diagnoser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace bilevel::diagnosis {
namespace {

// Yardstick for the cheapest: a second derivative times a vector costs about two gradients. Fixed weights
// and not seconds, or two runs would recommend two estimators.
double price(const OracleCounts& c) {
  return static_cast<double>(c.inner_gradient + c.outer_gradient + 2 * (c.hessian + c.cross));
}

double worse(const MethodDiagnosis& d) { return std::fmax(d.error, d.another_error); }

}  // namespace

MethodDiagnosis* Diagnoser::cheapest() {
  const auto better = [](const MethodDiagnosis& a, const MethodDiagnosis& b) {
    if ((a.basis == Basis::measured) != (b.basis == Basis::measured)) return a.basis == Basis::measured;
    return price(a.counts) < price(b.counts);
  };
  MethodDiagnosis* best = nullptr;
  for (MethodDiagnosis& d : result_.methods) {
    if (d.reaches && d.usable && (best == nullptr || better(d, *best))) best = &d;
  }
  if (best != nullptr) return best;
  // Out of reach for all: the one that comes nearest, unless it is nearer by a hair.
  for (MethodDiagnosis& d : result_.methods) {
    if (!d.usable || !std::isfinite(d.error)) continue;
    if (best == nullptr || worse(d) < 0.9 * worse(*best)) best = &d;
  }
  return best;
}

// The next one where the cheapest does not do what its row says.
void Diagnoser::recommend() {
  MethodDiagnosis* best = cheapest();
  for (;; best = cheapest()) {
    take(best);
    if (best == nullptr) break;
    verify(*best);
    const Recommendation& r = result_.recommendation;
    if (r.reaches || !best->reaches) break;
    best->reaches = false;
    best->error = r.error;
    best->another_error = r.another_error;
    best->basis = r.basis;
    best->note = "when tried again, it does not reach the accuracy";
  }
  Recommendation& r = result_.recommendation;
  result_.inner = r.inner;
  result_.end_steps = result_.unsafe_rate ? 0 : inner_.steps;
  if (result_.unsafe_rate) r.reaches = false;
  r.sentence = result_.unsafe_rate ? unsafe_sentence() : sentence(best);
}

const Method& Diagnoser::method(const std::string& name) const {
  return *std::find_if(methods_.begin(), methods_.end(), [&](const Method& m) { return m.name == name; });
}

void Diagnoser::take(const MethodDiagnosis* best) {
  Recommendation& r = result_.recommendation;
  r = {};
  r.inner = inner_;
  if (best == nullptr) {
    r.method = "truncated";
    r.has_terms = true;
    r.terms = std::min<int64_t>(options_.settings.truncate, inner_.steps);
    r.error = r.another_error = none;
    return;
  }
  r.reaches = best->reaches;
  r.method = best->name;
  r.has_terms = best->terms.has_value();
  r.terms = best->terms.value_or(0);
  r.inner.steps = best->inner_steps;
  r.error = best->error;
  r.basis = best->basis;
  r.another_error = best->another_error;
  if (method(r.method).implicit && !method(r.method).own) {
    r.curvature = options_.settings.curvature;
    if (method(r.method).traits.approach == Approach::series) r.linear_rate = options_.settings.linear_rate;
  }
}

bool Diagnoser::affordable(const MethodDiagnosis& d) const {
  return oracle_calls(d.counts) <= loop_share * options_.calls_per_method;
}

// One hypergradient with just these settings, from the start: what a user will get.
void Diagnoser::verify(const MethodDiagnosis& best) {
  Recommendation& r = result_.recommendation;
  const Method& row = method(r.method);
  const Tensor& reference = row.implicit ? implicit_ : unrolled_;
  if (!reference.defined() || !affordable(best)) return;
  say("checking the recommendation");
  EstimatorSettings settings = options_.settings;
  settings.terms = settings.truncate = r.terms;
  settings.byte_budget = std::max<int64_t>(best.bytes, state_bytes());
  const auto estimator = row.make(settings);
  r.error = relative_error(run_from_start(oracle_, *estimator, r.inner.steps).value, reference);
  r.basis = Basis::measured;
  const Tensor& another = row.implicit ? another_implicit_ : another_unrolled_;
  if (another.defined()) {
    r.another_error =
        relative_error(run_from_start(*another_oracle_, *estimator, r.inner.steps).value, another);
  }
  r.reaches = r.error <= options_.accuracy && !(r.another_error > options_.accuracy);
}

std::string Diagnoser::unsafe_sentence() const {
  return fmt::format(
      "At the given rate of {:g} the inner steps of {} do not contract ({:.3g} per step): the rate must be "
      "below {:.3g}, the largest safe one here. Leave --inner-rate out, or give {:.3g}.",
      inner_.rate, inner_.optimizer, result_.contraction, result_.largest_safe_rate,
      result_.largest_safe_rate / 2);
}

std::string Diagnoser::sentence(const MethodDiagnosis* best) const {
  const Recommendation& r = result_.recommendation;
  std::string why;
  if (result_.reference == ReferenceKind::unrolled) {
    why = "The start or the rate is part of x, so only the derivative of the steps taken counts: ";
  } else if (result_.negative_curvature) {
    why = fmt::format(
        "The inner Hessian's eigenvalues range from {:.3g} to {:.3g}, so no inverse of it can be trusted: ",
        result_.end.spectrum.smallest, result_.end.spectrum.largest);
  } else if (!result_.solution && !positive(result_.end.spectrum)) {
    why = fmt::format("The inner curvature is flat (from {:.3g} to {:.3g}), so its inverse says little: ",
                      result_.end.spectrum.smallest, result_.end.spectrum.largest);
  }
  std::string what = r.method;
  if (r.curvature.kind == "gauss-newton") what += " on the Gauss-Newton matrix";
  if (r.curvature.damping > 0) what += fmt::format(" with damping {:g}", r.curvature.damping);
  if (r.has_terms) what += fmt::format(" with K = {}", r.terms);
  const std::string momentum = r.inner.optimizer == "nesterov" || r.inner.optimizer == "heavy-ball"
                                   ? fmt::format(" (momentum {:g})", r.inner.momentum)
                                   : "";
  const std::string rate =
      oracle_.inner_rate(x_).defined() ? "their learned rate" : fmt::format("rate {:.4g}", r.inner.rate);
  std::string text =
      fmt::format("{}{} {} after T = {} steps of {}{} at {}", why, why.empty() ? "Take" : "take", what,
                  r.inner.steps, r.inner.optimizer, momentum, rate);
  if (best == nullptr) return text + ": nothing could be measured here.";
  const char* against = !method(r.method).implicit && !result_.solution ? "the derivative of all steps"
                        : result_.reference == ReferenceKind::solution
                            ? "the exact hypergradient"
                            : "that matrix's own inverse where the inner loop ends, solved or not";
  text += fmt::format("; its error is {:.2g} ({}) against {}", r.error, name_of(r.basis), against);
  if (std::isfinite(r.another_error)) {
    text += fmt::format(" ({:.2g} for a random df/dw in place of this one)", r.another_error);
  }
  if (!r.reaches) {
    text += fmt::format(", above the target {:g}: {}", options_.accuracy,
                        result_.inner_error > options_.accuracy
                            ? "the inner problem is too far from solved; take more inner steps"
                            : "no other estimator that was tried comes closer");
  }
  return text +
         fmt::format("; {} gradients and products for each hypergradient.", oracle_calls(best->counts));
}

}  // namespace bilevel::diagnosis
