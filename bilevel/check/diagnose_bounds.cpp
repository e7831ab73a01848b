// Rows of estimators that cannot be measured or are not worth it: bounds and counts by formula.
#include "bilevel/check/diagnoser.h"

#include <algorithm>
#include <cmath>

#include "bilevel/hypergradients/checkpoints.h"

namespace bilevel::diagnosis {

// All but reverse mode for gradient descent have other numbers than reverse: Lemma 2 knows no momentum, and
// its forward mode takes df/dw along the way.
bool Diagnoser::gives_what_reverse_does(const std::string& name) const {
  return name != "general-forward" && (name != "general-backward" || inner_.optimizer == "gd");
}

int64_t Diagnoser::loop_steps() const { return reverse_ ? reverse_->terms : inner_.steps; }

// What the derivative through the last `steps` steps costs, by each estimator's own schedule.
void Diagnoser::count_steps(const std::string& name, int64_t steps, MethodDiagnosis& d) const {
  const Problem& problem = *named_.problem;
  const int64_t m = x_.numel(), n_bytes = static_cast<int64_t>(start_.nbytes());
  const bool general = is_one_of(name, {"general-backward", "general-forward"});
  const bool through_start = !general && name != "truncated" && problem.inner_start(x_).defined();
  const bool steps_gradients =
      make_inner_optimizer(inner_)->adjoint_needs_gradient() || oracle_.inner_rate(x_).defined();
  OracleCounts c;
  c.outer_gradient = 1;
  c.inner_gradient = steps_gradients && !general ? steps : 0;
  c.hessian = through_start ? steps : std::max<int64_t>(steps - 1, 0);
  c.cross = problem.inner_loss_uses_outer() ? steps : 0;
  d.bytes = steps * state_bytes();
  if (name == "reverse-sqrt") {
    const auto kept = static_cast<int64_t>(sqrt_checkpoints(steps).size());
    c.inner_gradient += steps - kept;
    d.bytes = (kept + std::min(sqrt_segment(steps), steps) - 1) * state_bytes();
  } else if (name == "reverse-binomial") {
    c.inner_gradient += binomial_recomputed(steps, binomial_slots(steps));
    d.bytes = std::min(binomial_slots(steps), steps) * state_bytes();
  } else if (name == "forward") {
    c.inner_gradient = steps;
    c.hessian *= m;
    c.cross *= m;
    d.bytes = (1 + m) * state_bytes();
  } else if (name == "general-forward") {
    c.outer_gradient += steps;
    c.cross = std::min<int64_t>(c.cross, 1);
    d.bytes += steps * n_bytes;
  }
  c.samples = (c.inner_gradient + c.hessian + c.cross) * problem.inner_samples() +
              c.outer_gradient * problem.outer_samples();
  d.counts = c;
  add_inner_loop(d);
}

// Where nothing can be measured: the theory's bounds, and counts by their formulas.
void Diagnoser::predict(const Method& row, MethodDiagnosis& d) {
  if (is_reverse(row.name)) {
    d.inner_steps = loop_steps();
    count_steps(row.name, d.inner_steps, d);
    if (row.name != "forward") return;
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
  if (has_terms(row.name)) predict_terms(row, d);
  d.seconds = seconds_of(d.counts);
}

void Diagnoser::predict_terms(const Method& row, MethodDiagnosis& d) {
  if (!bound_inputs_ && (result_.solution || invertible_)) find_bound_inputs();
  if (!bound_inputs_ || !(scale_ > 0)) return;
  const auto relative = [&](int64_t k) { return theory_of_terms(row.name, k, *bound_inputs_) / scale_; };
  d.asked_error = relative(*d.asked_terms);
  d.asked_basis = Basis::bound;
  const double first = relative(1);
  if (!std::isfinite(first)) return;
  const int64_t more = steps_to_shrink(contraction_of(row.name), options_.accuracy / first);
  if (more > (int64_t{1} << 40)) return;
  d.terms = 1 + more;
  d.error = relative(*d.terms);
  d.basis = Basis::bound;
  d.reaches = true;
  d.counts.hessian = *d.terms;
  d.counts.cross = row.implicit ? 1 : *d.terms;
  d.bytes = row.implicit ? 4 * static_cast<int64_t>(start_.nbytes()) : *d.terms * state_bytes();
}

void Diagnoser::find_bound_inputs() {
  Trajectory here = standing_at(state_at(inner_.steps));
  EstimatorSettings settings = options_.settings;
  const Hypergradient h = make_estimator("cg", settings)->estimate(oracle_, {.x = x_, .inner = here});
  scale_ = length(h.value);
  bound_inputs_ = bound_inputs(oracle_, x_, here, inverted_, settings.curvature, settings.linear_rate);
  bound_inputs_->steps = inner_.steps;  // it stands at their end and holds none of them
}

}  // namespace bilevel::diagnosis
