// One trial of an estimator with given K and T: its error, how fast that falls, and its cost.
#include "bilevel/check/diagnoser.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bilevel::diagnosis {

int64_t binomial_slots(int64_t steps) {
  return 1 + static_cast<int64_t>(std::log2(static_cast<double>(steps + 1)));
}

double relative_error(const Tensor& value, const Tensor& reference) {
  if (!value.defined() || !reference.defined()) return none;
  const double scale = length(reference), error = length(value - reference);
  return scale > 0 ? error / scale : error;
}

Hypergradient Diagnoser::run_from_start(Oracle& oracle, const HypergradientEstimator& estimator,
                                        int64_t steps) {
  InnerOptions options = inner_;
  options.steps = steps;
  return hypergradient_at(oracle, x_, start_, options, estimator).hypergradient;
}

std::shared_ptr<const HypergradientEstimator> Diagnoser::made(const Method& row, int64_t terms,
                                                              int64_t steps) const {
  EstimatorSettings settings = options_.settings;
  settings.terms = settings.truncate = terms;
  settings.byte_budget = std::max<int64_t>(state_bytes() * binomial_slots(steps), 1);
  return row.make(settings);
}

Hypergradient Diagnoser::estimate(Oracle& oracle, const Method& row, int64_t terms, int64_t steps) {
  const auto estimator = made(row, terms, steps);
  if (row.own) return run_from_start(oracle, *estimator, steps);  // no one knows what it reads of the steps
  if (row.traits.approach == Approach::last_steps) {
    return estimator->estimate(oracle, {.x = x_, .inner = kept_trajectory(steps)});
  }
  if (result_.reference != ReferenceKind::unrolled && estimator->keeps(steps, state_bytes()).empty()) {
    Trajectory here = standing_at(state_at(steps));
    return estimator->estimate(oracle, {.x = x_, .inner = here});
  }
  return run_from_start(oracle, *estimator, steps);
}

Diagnoser::Trial Diagnoser::try_terms(const Method& row, int64_t terms, int64_t steps) {
  Trial trial;
  trial.terms = terms;
  trial.steps = steps;
  trial.hypergradient = estimate(oracle_, row, terms, steps);
  trial.error = relative_error(trial.hypergradient.value, row.implicit ? implicit_ : unrolled_);
  if (!std::isfinite(trial.error)) trial.error = std::numeric_limits<double>::infinity();
  return trial;
}

// NaN where there is no second question or no exact answer to it.
double Diagnoser::another_error(const Method& row, int64_t terms, int64_t steps) {
  const Tensor& reference = row.implicit ? another_implicit_ : another_unrolled_;
  if (!reference.defined()) return none;
  const double error = relative_error(estimate(*another_oracle_, row, terms, steps).value, reference);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

// The larger error of the two questions. The second is asked where the first is answered well enough: what
// fails there fails.
double Diagnoser::worse_error(const Method& row, Trial& trial) {
  if (!(trial.error <= options_.accuracy)) return trial.error;
  trial.another_error = another_error(row, trial.terms, trial.steps);
  return std::fmax(trial.error, trial.another_error);
}

const Trajectory& Diagnoser::kept_trajectory(int64_t steps) {
  if (kept_steps_ != steps) {
    InnerLoop run;
    run.options = inner_;
    run.options.steps = steps;
    for (int64_t t = 0; t < steps; ++t) run.keep.push_back(t);
    run.measure_gradient = false;
    kept_ = run_inner(oracle_, x_, start_, run);
    kept_steps_ = steps;
  }
  return kept_;
}

// Of a term of its series, or of a step that goes back; 1 = not known.
double Diagnoser::contraction_of(const Method& row) const {
  if (!row.implicit) return result_.solution ? result_.contraction : 1;
  const Spectrum& s = result_.solution ? result_.solution->spectrum : inverted_;
  if (row.traits.approach == Approach::krylov && !positive(s)) return 1;
  return row.make(options_.settings)->contraction(s, inner_.rate);
}

double Diagnoser::seconds_of(const OracleCounts& c) const {
  const UnitSeconds& u = result_.unit;
  return static_cast<double>(c.inner_gradient) * u.inner_gradient +
         static_cast<double>(c.outer_gradient) * u.outer_gradient +
         static_cast<double>(c.hessian) * u.hessian + static_cast<double>(c.cross) * u.cross;
}

// Fills counts, seconds and bytes of `terms` from what was measured at a trial: a term more is a product
// more.
void Diagnoser::set_cost(const Method& row, const Trial& trial, MethodDiagnosis& d) const {
  const int64_t more = d.terms ? *d.terms - trial.terms : 0;
  if (more != 0 && row.traits.approach == Approach::last_steps) {
    return set_predicted_cost(*cost_of(row, *d.terms, inner_.steps), d);
  }
  d.counts = trial.hypergradient.counts;
  d.counts.hessian += more;
  d.counts.samples += more * named_.problem->inner_samples();
  d.bytes = trial.hypergradient.bytes_kept;
  if (row.traits.approach == Approach::low_rank) d.bytes += more * static_cast<int64_t>(start_.nbytes());
  add_inner_loop(d);
}

void Diagnoser::add_inner_loop(MethodDiagnosis& d) const {
  d.counts.inner_gradient += d.inner_steps;
  d.counts.samples += d.inner_steps * named_.problem->inner_samples();
  d.seconds = seconds_of(d.counts);
}

}  // namespace bilevel::diagnosis
