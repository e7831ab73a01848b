// Which estimator to take, tried once more with just these settings, and the sentence that says so.
#include "bilevel/check/diagnoser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace bilevel::diagnosis {
namespace {

// Yardstick for the cheapest: a second derivative times a vector costs about two gradients. Fixed weights
// and not seconds, or two runs would recommend two methods.
double price(const OracleCounts& c) {
  return static_cast<double>(c.inner_gradient + c.outer_gradient + 2 * (c.hessian + c.cross));
}

}  // namespace

const MethodDiagnosis* Diagnoser::cheapest() const {
  const auto better = [](const MethodDiagnosis& a, const MethodDiagnosis& b) {
    if ((a.basis == Basis::measured) != (b.basis == Basis::measured)) return a.basis == Basis::measured;
    return price(a.counts) < price(b.counts);
  };
  const MethodDiagnosis* best = nullptr;
  for (const MethodDiagnosis& d : report_.methods) {
    if (d.reaches && d.usable && (best == nullptr || better(d, *best))) best = &d;
  }
  if (best != nullptr) return best;
  // Out of reach for all: the one that comes nearest, unless it is nearer by a hair.
  for (const MethodDiagnosis& d : report_.methods) {
    if (!d.usable || !std::isfinite(d.error)) continue;
    if (best == nullptr || d.error < 0.9 * best->error) best = &d;
  }
  return best;
}

void Diagnoser::recommend() {
  Recommendation& r = report_.recommendation;
  const MethodDiagnosis* best = cheapest();
  if (best == nullptr) {
    r.method = "truncated";
    r.has_terms = true;
    r.terms = std::min<int64_t>(options_.settings.truncate, inner_.steps);
    r.inner = inner_;
    r.error = none;
  } else {
    r.reaches = best->reaches;
    r.method = best->name;
    r.has_terms = best->terms.has_value();
    r.terms = best->terms.value_or(0);
    r.inner = inner_;
    r.inner.steps = best->inner_steps;
    r.error = best->error;
    r.basis = best->basis;
    if (find_estimator(r.method).implicit) {
      r.curvature = options_.settings.curvature;
      if (is_series(r.method)) r.series_rate = options_.settings.series_rate;
    }
  }
  report_.inner = r.inner;
  if (best != nullptr) verify(*best);
  r.sentence = sentence(best);
}

bool Diagnoser::affordable(const MethodDiagnosis& d) const {
  return oracle_calls(d.counts) <= loop_share * options_.calls_per_method;
}

// One hypergradient with just these settings, from the start: what a user will get.
void Diagnoser::verify(const MethodDiagnosis& best) {
  Recommendation& r = report_.recommendation;
  const EstimatorRow& row = find_estimator(r.method);
  const Tensor& reference = row.implicit ? implicit_ : unrolled_;
  if (!reference.defined() || !affordable(best)) return;
  say("the recommendation, once more");
  EstimatorSettings settings = options_.settings;
  settings.terms = settings.truncate = r.terms;
  settings.byte_budget = std::max<int64_t>(best.bytes, state_bytes());
  const auto estimator = make_estimator(r.method, settings);
  r.error = relative_error(run_from_start(*estimator, r.inner.steps).value, reference);
  r.basis = Basis::measured;
  r.reaches = r.error <= options_.accuracy;
}

std::string Diagnoser::sentence(const MethodDiagnosis* best) const {
  const Recommendation& r = report_.recommendation;
  std::string why;
  if (report_.reference == ReferenceKind::unrolled) {
    why = "Start or rate are part of x, so that only the derivative of the steps taken counts: ";
  } else if (report_.negative_curvature) {
    why = fmt::format(
        "The inner Hessian has an eigenvalue of {:.3g} beside {:.3g}, so that no inverse of it is to be "
        "trusted: ",
        report_.end.spectrum.smallest, report_.end.spectrum.largest);
  } else if (!report_.solution && !positive(report_.end.spectrum)) {
    why = fmt::format(
        "The inner curvature is flat ({:.3g} beside {:.3g}), so that its inverse says "
        "little: ",
        report_.end.spectrum.smallest, report_.end.spectrum.largest);
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
  const char* against = !find_estimator(r.method).implicit && !report_.solution
                            ? "the derivative of all steps"
                        : report_.reference == ReferenceKind::solution
                            ? "the exact hypergradient"
                            : "that matrix's own inverse where the inner loop ends, solved or not";
  text += fmt::format("; its error is {:.2g} ({}) against {}", r.error, name_of(r.basis), against);
  if (!r.reaches) {
    text += fmt::format(", above the wished {:g}: {}", options_.accuracy,
                        report_.inner_error > options_.accuracy
                            ? "the inner problem is too far from solved, take more inner steps"
                            : "nothing that was tried comes closer");
  }
  return text + fmt::format("; {} gradients and products a hypergradient.", oracle_calls(best->counts));
}

}  // namespace bilevel::diagnosis
