// One row per estimator: the least K (or T) that the accuracy needs, found by measuring, and its cost.
#include "bilevel/check/diagnoser.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace bilevel::diagnosis {
namespace {

constexpr double total_share = 0.9;    // of the accuracy, that a choice may use up here: x will move
constexpr int64_t large_inner = 1000;  // unknowns, above which nothing is factorised

}  // namespace

bool Diagnoser::worth_measuring(const EstimatorRow& row) const {
  if (!(row.implicit ? implicit_ : unrolled_).defined()) return false;
  return row.name != "forward" ||
         2 * inner_.steps * x_.numel() <= options_.calls_per_method;  // T m products of two kinds
}

void Diagnoser::diagnose_method(const EstimatorRow& row) {
  say(row.name);
  MethodDiagnosis d;
  d.name = row.name;
  d.inner_steps = inner_.steps;
  d.error = d.asked_error = none;
  if (has_terms(row.name)) {
    d.asked_terms = row.name == "truncated" ? std::min(options_.settings.truncate, inner_.steps)
                                            : options_.settings.terms;
    if (row.name == "nystrom") d.asked_terms = std::clamp<int64_t>(*d.asked_terms, 1, start_.numel());
  }
  if (!worth_measuring(row)) {
    predict(row, d);
  } else if (has_terms(row.name)) {
    measure_terms(row, d);
  } else if (is_reverse(row.name)) {
    measure_reverse(row, d);
  } else {
    measure_once(row, d);
  }
  judge(row, d);
  report_.methods.push_back(std::move(d));
}

void Diagnoser::judge(const EstimatorRow& row, MethodDiagnosis& d) const {
  if (report_.reference == ReferenceKind::unrolled && row.implicit) {
    d.usable = false;
    d.note = "the derivative through a learned start or rate is not implicit";
  } else if (is_one_of(row.name, {"one-step", "t1t2"})) {
    d.usable = false;
    d.note = "it has no K that would lower its error as x moves";
  } else if (row.implicit && !report_.solution && !invertible_) {
    d.usable = false;
    d.note = "the curvature is not positive";
  } else if (d.basis == Basis::bound) {
    d.usable = false;
    d.note = "a bound alone, which leaves out that the inner problem is not solved";
  } else if (is_one_of(row.name, {"general-backward", "general-forward"})) {
    d.usable = false;
    d.note = "reverse for plain steps alone: it knows no momentum";
  } else if (row.name == "exact") {
    d.usable = false;
    d.note = "a reference: cg with enough K is as good and says what it costs";
  } else if (!d.reaches && d.basis != Basis::none) {
    d.note = "nothing that was tried reaches the accuracy";
  }
}

void Diagnoser::measure_once(const EstimatorRow& row, MethodDiagnosis& d) {
  if (row.name == "exact" && start_.numel() > large_inner && report_.inner_basis == Basis::measured) {
    d.error = report_.inner_error;  // nearly exact inverses were measured along the loop
    d.basis = Basis::measured;
    d.reaches = d.error <= options_.accuracy;
    d.counts.inner_gradient = inner_.steps;
    d.seconds = seconds_of(d.counts);
    d.bytes = 4 * static_cast<int64_t>(start_.nbytes());
    return;
  }
  const Trial trial = try_terms(row, 0, inner_.steps);
  d.error = trial.error;
  d.basis = Basis::measured;
  d.reaches = d.error <= options_.accuracy;
  set_cost(row, trial, d);
}

void Diagnoser::measure_terms(const EstimatorRow& row, MethodDiagnosis& d) {
  Trial asked = try_terms(row, *d.asked_terms, inner_.steps);
  d.asked_error = asked.error;
  d.asked_basis = Basis::measured;
  int64_t most = row.name == "truncated" ? inner_.steps : int64_t{1} << 24;
  if (row.name == "nystrom") most = start_.numel();
  const int64_t budget = oracle_calls(oracle_.counts()) + options_.calls_per_method;
  Trial last;
  std::map<int64_t, Trial> tried;
  const auto error_at = [&](int64_t k) {
    last = try_terms(row, k, inner_.steps);
    last.hypergradient.solution = Tensor();  // only its numbers are needed
    tried[k] = last;
    return last.error;
  };
  const LeastTerms found =
      least_terms(error_at,
                  {.most = most,
                   .target = total_share * options_.accuracy,
                   .contraction = contraction_of(row.name),
                   .floor = std::isfinite(report_.inner_error) ? report_.inner_error : 0},
                  [&](int64_t k) { return oracle_calls(oracle_.counts()) + k <= budget; });
  d.terms = found.terms;
  d.error = found.error;
  d.reaches = found.reached || found.error <= options_.accuracy;
  d.basis = found.extrapolated ? Basis::extrapolated : Basis::measured;
  const auto at = tried.find(found.terms);
  set_cost(row, at != tried.end() ? at->second : last, d);
}

// T is the one number that reverse mode has.
void Diagnoser::measure_reverse(const EstimatorRow& row, MethodDiagnosis& d) {
  const bool fixed = options_.given.steps || !report_.solution;
  if (!reverse_ && !fixed && row.name == "reverse") {
    const int64_t budget = oracle_calls(oracle_.counts()) + options_.calls_per_method;
    const auto error_at = [&](int64_t t) {
      reverse_trial_ = try_terms(row, 0, t);
      return reverse_trial_.error;
    };
    reverse_ = least_terms(error_at,
                           {.first = std::max<int64_t>(inner_.steps / 2, 1),
                            .target = total_share * options_.accuracy,
                            .contraction = report_.contraction},
                           [&](int64_t t) { return oracle_calls(oracle_.counts()) + 3 * t <= budget; });
  }
  const int64_t steps = reverse_ ? reverse_->terms : inner_.steps;
  const bool measured = !reverse_ || (!reverse_->extrapolated && 3 * steps <= options_.calls_per_method);
  const bool own = row.name == "reverse" && reverse_ && reverse_trial_.steps == steps;
  const Trial trial = own                     ? reverse_trial_
                      : measured              ? try_terms(row, 0, steps)
                      : row.name == "reverse" ? reverse_trial_
                                              : try_terms(row, 0, std::min<int64_t>(steps, 20));
  d.inner_steps = steps;
  d.error = measured ? trial.error : reverse_->error;
  d.basis = measured ? Basis::measured : Basis::extrapolated;
  d.reaches = measured ? d.error <= options_.accuracy : reverse_->reached;
  set_cost(row, trial, d);
}

}  // namespace bilevel::diagnosis
