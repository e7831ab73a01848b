// Rows of estimators that cannot be measured or are not worth it: bounds and counts by formula.
#include "bilevel/check/diagnoser.h"

#include <algorithm>
#include <cmath>

namespace bilevel::diagnosis {

// Lemma 2 knows no momentum, and what estimates another limit has other numbers.
bool Diagnoser::gives_what_reverse_does(const Method& row) const {
  return !row.implicit && (!row.traits.plain_steps || inner_.optimizer == "gd");
}

int64_t Diagnoser::loop_steps() const { return reverse_ ? reverse_->terms : inner_.steps; }

// By the estimator's own schedule, where it has one.
std::optional<StepsCost> Diagnoser::cost_of(const Method& row, int64_t terms, int64_t steps) const {
  const Problem& problem = *named_.problem;
  StepsAsked inner;
  inner.steps = steps;
  inner.outer_size = x_.numel();
  inner.iterate_bytes = static_cast<int64_t>(start_.nbytes());
  inner.state_bytes = state_bytes();
  inner.uses_outer = problem.inner_loss_uses_outer();
  inner.learned_start = problem.inner_start(x_).defined();
  inner.adjoint_needs_gradient =
      make_inner_optimizer(inner_)->adjoint_needs_gradient() || oracle_.inner_rate(x_).defined();
  return made(row, terms, steps)->cost(inner);
}

void Diagnoser::set_predicted_cost(const StepsCost& cost, MethodDiagnosis& d) const {
  const Problem& problem = *named_.problem;
  OracleCounts c = cost.counts;
  c.samples = (c.inner_gradient + c.hessian + c.cross) * problem.inner_samples() +
              c.outer_gradient * problem.outer_samples();
  d.counts = c;
  d.bytes = cost.bytes;
  add_inner_loop(d);
}

// Where nothing can be measured: the theory's bounds, and counts by their formulas.
void Diagnoser::predict(const Method& row, MethodDiagnosis& d) {
  if (row.traits.approach == Approach::all_steps) {
    d.inner_steps = loop_steps();
    if (const auto cost = cost_of(row, 0, d.inner_steps)) set_predicted_cost(*cost, d);
    if (!row.traits.per_outer_variable) return;
    d.note = "T m products of two kinds";
    if (reverse_) {
      d.error = reverse_->error;
      d.basis = Basis::extrapolated;
      d.reaches = reverse_->reached;
    }
    return;
  }
  d.counts.inner_gradient = inner_.steps;
  d.counts.outer_gradient = 1;
  if (row.has_terms) predict_terms(row, d);
  d.seconds = seconds_of(d.counts);
}

void Diagnoser::predict_terms(const Method& row, MethodDiagnosis& d) {
  if (!theory_inputs_ && (result_.solution || invertible_)) find_theory_inputs();
  if (!theory_inputs_ || !(scale_ > 0)) return;
  const auto relative = [&](int64_t k) {
    return made(row, k, inner_.steps)->theory(*theory_inputs_) / scale_;
  };
  d.asked_error = relative(*d.asked_terms);
  d.asked_basis = Basis::bound;
  const double first = relative(1);
  if (!std::isfinite(first)) return;
  const int64_t more = steps_to_shrink(contraction_of(row), options_.accuracy / first);
  if (more > (int64_t{1} << 40)) return;
  d.terms = 1 + more;
  d.error = relative(*d.terms);
  d.basis = Basis::bound;
  d.reaches = true;
  d.counts.hessian = *d.terms;
  d.counts.cross = row.implicit ? 1 : *d.terms;
  d.bytes = row.implicit ? 4 * static_cast<int64_t>(start_.nbytes()) : *d.terms * state_bytes();
}

void Diagnoser::find_theory_inputs() {
  Trajectory here = standing_at(state_at(inner_.steps));
  EstimatorSettings settings = options_.settings;
  const Hypergradient h = make_estimator("cg", settings)->estimate(oracle_, {.x = x_, .inner = here});
  scale_ = length(h.value);
  theory_inputs_ = theory_inputs(oracle_, x_, here, inverted_, settings.curvature);
  theory_inputs_->steps = inner_.steps;  // it stands at their end and holds none of them
}

}  // namespace bilevel::diagnosis
