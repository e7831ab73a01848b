// Rows of estimators that cannot be measured or are not worth it: bounds and counts by formula.
#include "bilevel/check/diagnoser.h"

#include <algorithm>
#include <cmath>

namespace bilevel::diagnosis {

// Where nothing can be measured: the theory's bounds, and counts by their formulas.
void Diagnoser::predict(const EstimatorRow& row, MethodDiagnosis& d) {
  const int64_t n_bytes = static_cast<int64_t>(start_.nbytes()), m = x_.numel(), t = inner_.steps;
  d.counts.inner_gradient = t;
  d.counts.outer_gradient = 1;
  if (row.name == "forward") {
    d.counts.hessian = std::max<int64_t>(t - 1, 0) * m;
    d.counts.cross = t * m;
    d.bytes = n_bytes * m;
    d.inner_steps = reverse_ ? reverse_->terms : t;
    d.note = "T m products of two kinds";
    if (reverse_) {
      d.error = reverse_->error;
      d.basis = Basis::extrapolated;
      d.reaches = reverse_->reached;
    }
    d.seconds = seconds_of(d.counts);
    return;
  }
  if (is_reverse(row.name)) {
    d.counts.hessian = std::max<int64_t>(t - 1, 0);
    d.counts.cross = t;
    d.bytes = t * state_bytes();
  }
  if (has_terms(row.name)) predict_terms(row, d);
  d.seconds = seconds_of(d.counts);
}

void Diagnoser::predict_terms(const EstimatorRow& row, MethodDiagnosis& d) {
  if (!bound_inputs_ && (report_.solution || invertible_)) find_bound_inputs();
  if (!bound_inputs_ || !(scale_ > 0)) return;
  const auto relative = [&](int64_t k) { return error_bound(row.name, k, *bound_inputs_) / scale_; };
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
  bound_inputs_ = bound_inputs(oracle_, x_, here, inverted_, settings.curvature, settings.series_rate);
  bound_inputs_->steps = inner_.steps;  // it stands at their end and holds none of them
}

}  // namespace bilevel::diagnosis
