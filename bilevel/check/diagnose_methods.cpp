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

bool Diagnoser::worth_measuring(const Method& row) const {
  if (!(row.implicit ? implicit_ : unrolled_).defined()) return false;
  return !row.traits.per_outer_variable ||
         2 * loop_steps() * x_.numel() <= options_.calls_per_method;  // T m products of two kinds
}

void Diagnoser::diagnose_method(const Method& row) {
  say(row.name);
  MethodDiagnosis d;
  d.name = row.name;
  d.inner_steps = inner_.steps;
  d.error = d.asked_error = d.another_error = none;
  if (row.has_terms) {
    d.asked_terms = row.traits.approach == Approach::last_steps
                        ? std::min(options_.settings.truncate, inner_.steps)
                        : options_.settings.terms;
    if (row.traits.approach == Approach::low_rank)
      d.asked_terms = std::clamp<int64_t>(*d.asked_terms, 1, start_.numel());
  }
  if (!worth_measuring(row)) {
    predict(row, d);
  } else if (row.has_terms) {
    measure_terms(row, d);
  } else if (row.traits.approach == Approach::all_steps) {
    measure_reverse(row, d);
  } else {
    measure_once(row, d);
  }
  judge(row, d);
  result_.methods.push_back(std::move(d));
}

void Diagnoser::judge(const Method& row, MethodDiagnosis& d) const {
  const Approach approach = row.traits.approach;
  if (result_.reference == ReferenceKind::unrolled && row.implicit) {
    d.usable = false;
    d.note = "the derivative through a learned start or rate is not implicit";
  } else if (approach == Approach::last_step || approach == Approach::identity) {
    d.usable = false;
    d.note = "it has no K that would lower its error as x moves";
  } else if (row.implicit && !result_.solution && !invertible_) {
    d.usable = false;
    d.note = "the curvature is not positive";
  } else if (d.basis == Basis::bound) {
    d.usable = false;
    d.note = "only a bound, which ignores that the inner problem is not solved";
  } else if (row.traits.plain_steps) {
    d.usable = false;
    d.note = "equals reverse for plain steps and does not handle momentum";
  } else if (approach == Approach::inverse) {
    d.usable = false;
    d.note = "a reference: cg with enough K is as good and has a known cost";
  } else if (row.own && d.basis == Basis::none) {
    d.usable = false;
    d.note = "there is nothing to measure it against";
  } else if (!d.reaches && d.basis != Basis::none) {
    d.note = "no K that was tried reaches the accuracy";
  }
}

void Diagnoser::measure_once(const Method& row, MethodDiagnosis& d) {
  if (row.traits.approach == Approach::inverse && !row.own && start_.numel() > large_inner &&
      result_.inner_basis == Basis::measured) {
    d.error = result_.inner_error;  // nearly exact inverses were measured along the loop
    d.basis = Basis::measured;
    d.reaches = d.error <= options_.accuracy;
    d.counts = inverse_counts_;
    add_inner_loop(d);
    d.bytes = 4 * static_cast<int64_t>(start_.nbytes());
    return;
  }
  Trial trial = try_terms(row, 0, inner_.steps);
  d.basis = Basis::measured;
  d.reaches = (row.own ? worse_error(row, trial) : trial.error) <= options_.accuracy;
  d.error = trial.error;
  d.another_error = trial.another_error;
  set_cost(row, trial, d);
}

void Diagnoser::measure_terms(const Method& row, MethodDiagnosis& d) {
  Trial asked = try_terms(row, *d.asked_terms, inner_.steps);
  d.asked_error = asked.error;
  d.asked_basis = Basis::measured;
  int64_t most = row.traits.approach == Approach::last_steps ? inner_.steps : int64_t{1} << 24;
  if (row.traits.approach == Approach::low_rank) most = start_.numel();
  const int64_t budget = calls() + options_.calls_per_method;
  Trial last;
  std::map<int64_t, Trial> tried;
  const auto error_at = [&](int64_t k) {
    last = try_terms(row, k, inner_.steps);
    last.hypergradient.solution = Tensor();  // only its numbers are needed
    const double error = worse_error(row, last);
    tried[k] = last;
    return error;
  };
  const LeastTermsOptions search{.most = most,
                                 .target = total_share * options_.accuracy,
                                 .contraction = contraction_of(row),
                                 .floor = std::isfinite(result_.inner_error) ? result_.inner_error : 0};
  const LeastTerms found = least_terms(error_at, search, [&](int64_t k) { return calls() + k <= budget; });
  d.terms = found.terms;
  d.reaches = found.reached || found.error <= options_.accuracy;
  if (found.extrapolated) {
    d.basis = Basis::extrapolated;
    d.error = found.error;
    // A random p lies along the slowest directions, too: it has farther to go than one that does not.
    const double another = another_error(row, found.tried, inner_.steps);
    if (another > search.target) {
      const int64_t more =
          steps_to_shrink(search.contraction, (search.target - search.floor) / (another + search.floor));
      if (more < most - found.tried) d.terms = std::max(*d.terms, found.tried + more);
    }
    set_cost(row, last, d);
    return;
  }
  const Trial& best = tried.at(found.terms);
  d.basis = Basis::measured;
  d.error = best.error;
  d.another_error = best.another_error;
  set_cost(row, best, d);
}

// T is the one number that reverse mode has.
void Diagnoser::find_reverse_steps(const Method& row) {
  const int64_t budget = calls() + options_.calls_per_method;
  std::map<int64_t, Trial> tried;
  const auto error_at = [&](int64_t t) {
    Trial& trial = tried[t] = try_terms(row, 0, t);
    return worse_error(row, trial);
  };
  reverse_ = least_terms(error_at,
                         {.first = std::max<int64_t>(inner_.steps / 2, 1),
                          .target = total_share * options_.accuracy,
                          .contraction = result_.contraction,
                          .patient_until = expected_steps()},
                         [&](int64_t t) { return calls() + 3 * t <= budget; });
  if (!reverse_->extrapolated) reverse_trial_ = tried.at(reverse_->terms);
}

void Diagnoser::measure_reverse(const Method& row, MethodDiagnosis& d) {
  const bool first = row.name == "reverse";  // it decides T for all of them
  if (first && result_.solution && !options_.given.steps) find_reverse_steps(row);
  d.inner_steps = loop_steps();
  const bool found = reverse_ && !reverse_->extrapolated;
  if (first && found) {
    d.basis = Basis::measured;
    d.error = reverse_trial_.error;
    d.another_error = reverse_trial_.another_error;
    d.reaches = reverse_->reached || reverse_->error <= options_.accuracy;
    set_cost(row, reverse_trial_, d);
    return;
  }
  const bool affordable = 3 * d.inner_steps <= options_.calls_per_method;
  if (!reverse_ || (found && affordable) || row.own) {
    const Trial trial = try_terms(row, 0, d.inner_steps);
    d.basis = Basis::measured;
    d.error = trial.error;
    d.another_error = another_error(row, 0, d.inner_steps);
    d.reaches = d.error <= options_.accuracy && !(d.another_error > options_.accuracy);
    set_cost(row, trial, d);
  } else {
    set_predicted_cost(*cost_of(row, 0, d.inner_steps), d);
    if (!gives_what_reverse_does(row)) return;
    d.basis = Basis::extrapolated;
    d.error = reverse_->error;
    d.reaches = reverse_->reached;
  }
}

}  // namespace bilevel::diagnosis
