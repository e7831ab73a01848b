#include "bilevel/check/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace bilevel {
namespace {

bool is_off(double error, double limit) { return !(error <= limit); }  // NaN counts as off

// How many products or kept steps shrink the slowest error to the limit.
std::string needed_terms(const CheckResult& r, double contraction) {
  if (!(contraction < 1) || !(contraction > 0)) return {};
  const double k = std::ceil(std::log(r.trust_below) / std::log(contraction));
  return fmt::format("; about K = {:.0f} would do ({:.4g} per term)", std::max(k, 1.0), contraction);
}

bool is_hessian(const CurvatureOptions& c) { return c.kind == "hessian" && c.damping == 0; }

std::string curvature_text(const CurvatureOptions& c) {
  const std::string name = c.kind == "hessian" ? "Hessian" : "Gauss-Newton matrix";
  return c.damping > 0 ? fmt::format("{} + {:g} I", name, c.damping) : name;
}

// The same of kept steps; the Hessian rules the steps, so that another curvature says nothing about them.
std::string needed_steps(const CheckResult& r) {
  if (!is_hessian(r.curvature)) return {};
  const std::string needed = needed_terms(r, r.contraction);
  const bool all = !needed.empty() &&
                   std::log(r.trust_below) / std::log(r.contraction) > static_cast<double>(r.inner.steps - 1);
  return all ? "; only all of them would do" : needed;
}

// What spoils every implicit estimate here, whatever its linear solve; empty = nothing.
std::string implicit_obstacle(const CheckResult& r, double exact_error) {
  if (!r.implicit.value.defined()) return r.implicit.why;
  if (!r.implicit.at_iterate && is_off(exact_error, r.trust_below)) {
    return fmt::format(
        "inner problem not solved: |grad_w g| = {:.2g} after {} steps, so even the exact inverse is off by "
        "{:.2g}; take more --inner-steps",
        r.inner_gradient_norm, r.inner.steps, exact_error);
  }
  return {};
}

std::string negative_curvature(const CheckResult& r) {
  return fmt::format(
      "negative curvature: the smallest eigenvalue is {:.3g}; use --curvature gauss-newton, --damping above "
      "{:.2g}, minres or reverse",
      r.spectrum.smallest, -r.spectrum.smallest);
}

std::string why_implicit_is_off(const MethodRow& row, const CheckResult& r, double exact_error) {
  const Status status = row.hypergradient.status;
  if (status == Status::not_finite) return "the estimate is not finite";
  const std::string obstacle = implicit_obstacle(r, exact_error);
  const Approach approach = row.traits.approach;
  const bool along_steps = approach == Approach::all_steps;  // a series whose terms are the inner steps
  const bool is_series = approach == Approach::series || along_steps;
  const double rate = row.traits.linear_rate > 0 ? row.traits.linear_rate : r.inner_rate;
  if (is_series && rate > r.spectrum.largest_safe_rate()) {
    return fmt::format("rate {:.3g} is too large for the spectrum: a series needs less than {:.3g}", rate,
                       r.spectrum.largest_safe_rate());
  }
  if (r.spectrum.has_negative_curvature() && !row.traits.negative_curvature) {
    return negative_curvature(r);
  }
  if (approach == Approach::identity) {
    return fmt::format("replaces H^-1 by the identity, but H's eigenvalues are {:.3g} to {:.3g}",
                       r.spectrum.smallest, r.spectrum.largest);
  }
  if (!obstacle.empty()) return obstacle;
  if (approach == Approach::low_rank && row.terms)
    return fmt::format("rank {} is too low for {} unknowns", *row.terms, r.inner_size);
  if (along_steps && !is_hessian(r.curvature)) {
    return fmt::format("follows the Hessian along the inner iterates, not the {}",
                       curvature_text(r.curvature));
  }
  if (along_steps) {
    return fmt::format("T = {} inner steps are too few for its single recursion{}", r.inner.steps,
                       needed_terms(r, r.contraction));
  }
  if (is_series && row.terms)
    return fmt::format("the series is too short at K = {}{}", *row.terms,
                       needed_terms(r, r.spectrum.contraction(rate)));
  if (row.hypergradient.relative_residual > r.trust_below) {
    return fmt::format("linear system unsolved: relative residual {:.2g} after {} steps; take more --terms",
                       row.hypergradient.relative_residual, row.hypergradient.iterations);
  }
  if (status == Status::converged && !r.implicit.at_iterate) {  // `exact` is not there to show how far
    return fmt::format(
        "its linear system is solved, but not the inner problem: |grad_w g| = {:.2g} after {} steps; take "
        "more --inner-steps",
        r.inner_gradient_norm, r.inner.steps);
  }
  if (row.own) {
    return fmt::format("off by {:.2g} from the implicit hypergradient, with status {}", row.error_implicit,
                       name_of(status));
  }
  return fmt::format("ended with status {}", name_of(status));
}

std::string why_unrolled_is_off(const MethodRow& row, const CheckResult& r) {
  if (row.hypergradient.status == Status::not_finite) return "the estimate is not finite";
  const Approach approach = row.traits.approach;
  if (approach == Approach::last_step) {
    return fmt::format("differentiates 1 of T = {} steps{}", r.inner.steps, needed_steps(r));
  }
  if (approach == Approach::last_steps && row.terms) {
    return fmt::format("keeps K = {} of T = {} steps{}", *row.terms, r.inner.steps, needed_steps(r));
  }
  if (row.traits.plain_steps) {
    return "Lemma 2 describes gradient descent without momentum, from a fixed start at a fixed rate";
  }
  if (row.own) {
    return fmt::format("off by {:.2g} from the derivative of the T = {} steps taken", row.error_unrolled,
                       r.inner.steps);
  }
  return "differs from the unrolled reference: this is a bug, please report it";
}

double error_of_inverse(const CheckResult& r) {
  for (const MethodRow& row : r.methods) {
    if (row.traits.approach == Approach::inverse) return row.error_implicit;
  }
  return 0;  // not among the estimators: nothing is known against it
}

std::string why_not_implicit(const CheckResult& r) {
  if (r.implicit.at_iterate)
    return "right for the T steps taken, which is not what the implicit formula computes";
  return "right for the T steps taken, which do not yet solve the inner problem";
}

void judge_row(MethodRow& row, const CheckResult& r, double exact_error) {
  if (!row.hypergradient.value.defined()) return;  // was not run, and says why
  const double error = row.implicit ? row.error_implicit : row.error_unrolled;
  row.trusted = !is_off(error, r.trust_below);
  if (!row.trusted) {
    row.why = row.implicit ? why_implicit_is_off(row, r, exact_error) : why_unrolled_is_off(row, r);
  } else if (row.implicit) {
    row.why = "agrees with the implicit hypergradient";
  } else if (is_off(row.error_implicit, r.trust_below)) {
    row.why = why_not_implicit(r);
  } else {
    row.why = "right for the T steps taken and for the solved inner problem";
  }
}

// The trusted rows that are right for the implicit reference, or else those that are right for the steps
// alone.
std::vector<const MethodRow*> trusted_rows(const CheckResult& r, bool implicit) {
  std::vector<const MethodRow*> rows;
  for (const MethodRow& row : r.methods) {
    if (row.trusted && is_off(row.error_implicit, r.trust_below) != implicit) rows.push_back(&row);
  }
  return rows;
}

std::string names_of(const std::vector<const MethodRow*>& rows) {
  std::vector<std::string> names;
  for (const MethodRow* row : rows) names.push_back(row->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string cheapest(const std::vector<const MethodRow*>& rows) {
  const MethodRow* best = nullptr;
  const auto products = [](const MethodRow& row) {
    const OracleCounts& c = row.hypergradient.counts;
    return c.hessian + c.cross + c.inner_gradient + c.outer_gradient;
  };
  for (const MethodRow* row : rows) {
    // The exact one factorises a dense matrix besides: its products are not what it costs.
    if (row->traits.approach != Approach::inverse && (best == nullptr || products(*row) < products(*best)))
      best = row;
  }
  if (best == nullptr) return "Only the exact inverse is right here.";
  return fmt::format("The cheapest of them is {}: {} Hessian and {} cross products.", best->name,
                     best->hypergradient.counts.hessian, best->hypergradient.counts.cross);
}

std::string at_reference(const CheckResult& r) {
  return r.implicit.at_iterate ? "implicit formula at the final iterate" : "solved inner problem";
}

// For what it is that an estimator can be trusted: the two answers may be far apart.
void add_trusted(CheckResult& r) {
  const auto right = trusted_rows(r, true), for_steps = trusted_rows(r, false);
  if (right.empty() && for_steps.empty()) {
    r.verdict.push_back(fmt::format("No estimator reaches a relative error of {:g} here.", r.trust_below));
    return;
  }
  if (!right.empty()) {
    r.verdict.push_back(fmt::format("Trustworthy here for the {} (relative error up to {:g}): {}.",
                                    at_reference(r), r.trust_below, names_of(right)));
    r.verdict.push_back(cheapest(right));
  }
  if (for_steps.empty()) return;
  double farthest = 0;
  for (const MethodRow* row : for_steps) farthest = std::max(farthest, row->error_implicit);
  const std::string off =
      r.implicit.value.defined()
          ? fmt::format("; off by {:.2g} from the answer for the {}", farthest, at_reference(r))
          : "";
  r.verdict.push_back(fmt::format(
      "Trustworthy here {}for the T = {} steps taken (relative error up to {:g}{}): {}.",
      r.implicit.value.defined() ? "only " : "", r.inner.steps, r.trust_below, off, names_of(for_steps)));
  if (right.empty()) r.verdict.push_back(cheapest(for_steps));
}

// One sentence for each reason, with the estimators that share it.
void add_reasons(CheckResult& r) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const MethodRow& row : r.methods) {
    if (row.trusted) continue;
    auto found =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& one) { return one.first == row.why; });
    if (found == reasons.end()) found = reasons.insert(reasons.end(), {row.why, {}});
    found->second.push_back(row.name);
  }
  for (const auto& [why, names] : reasons)
    r.verdict.push_back(fmt::format("{}: {}.", fmt::join(names, ", "), why));
}

}  // namespace

std::vector<std::string> trusted_for(const MethodRow& row, const CheckResult& result) {
  std::vector<std::string> what;
  if (!row.trusted) return what;
  if (!is_off(row.error_implicit, result.trust_below)) {
    what.emplace_back(result.implicit.at_iterate ? "iterate" : "solution");
  }
  if (!is_off(row.error_unrolled, result.trust_below)) what.emplace_back("steps");
  return what;
}

void judge(CheckResult& result) {
  const double exact_error = error_of_inverse(result);
  for (MethodRow& row : result.methods) judge_row(row, result, exact_error);
  for (MethodRow& row : result.sweep) judge_row(row, result, exact_error);

  add_trusted(result);
  add_reasons(result);
  if (result.implicit.at_iterate && result.implicit.value.defined()) {
    result.verdict.push_back(fmt::format(
        "The implicit estimators are compared where the inner loop ended (|grad_w g| = {:.2g}) with the "
        "exact inverse of the same curvature, the {}: a network's inner problem is not solved.",
        result.inner_gradient_norm, curvature_text(result.curvature)));
  }
  if (!result.implicit.value.defined()) {
    result.verdict.push_back(fmt::format("There is no implicit reference: {}.", result.implicit.why));
  }
  if (result.inner_rate > result.largest_safe_rate) {
    result.verdict.push_back(fmt::format("The inner rate {:.3g} is above the largest safe one, {:.6g}.",
                                         result.inner_rate, result.largest_safe_rate));
  }
}

}  // namespace bilevel
