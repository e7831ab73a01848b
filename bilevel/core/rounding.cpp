#include "bilevel/core/rounding.h"

#include <ATen/ATen.h>

#include <cmath>

namespace bilevel {

std::optional<EvaluationErrors> evaluation_errors_of(const Problem& problem, const Tensor& w,
                                                     const Tensor& x) {
  const auto* bounded = dynamic_cast<const BoundedEvaluation*>(&problem);
  return bounded == nullptr ? std::nullopt : bounded->evaluation_errors(w, x);
}

double machine_epsilon(const Tensor& t) {
  return t.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                        : static_cast<double>(std::numeric_limits<float>::epsilon());
}

namespace {
double smallest_normal(const Tensor& t) {
  return t.scalar_type() == at::kDouble ? std::numeric_limits<double>::min()
                                        : static_cast<double>(std::numeric_limits<float>::min());
}
}  // namespace

double underflow_of(const Tensor& t) { return 1e8 * smallest_normal(t); }

double vanishing_length(const Tensor& t) {
  return std::sqrt(static_cast<double>(t.numel()) * smallest_normal(t));
}

double accumulated(int64_t operations, double epsilon) {
  const double part = static_cast<double>(operations) * epsilon / 2;
  // The factor covers the few roundings of this expression and of what it is multiplied with.
  return part < 1 ? part / (1 - part) * (1 + 1e-9) : std::numeric_limits<double>::infinity();
}

double norm_above(const Tensor& t) {
  const double up = 1 + accumulated(t.numel() + 4, std::numeric_limits<double>::epsilon());
  const Tensor in_double = t.detach().to(at::kDouble);
  return (in_double.norm().item<double>() + vanishing_length(in_double)) * up;
}

Tensor absolute_product(const Tensor& matrix, const Tensor& v) {
  return matrix.detach().to(at::kDouble).abs().mv(v.detach().to(at::kDouble).abs());
}

double squares_gradient_error(const Tensor& matrix, const Tensor& target, const Tensor& w, double factor) {
  const double epsilon = machine_epsilon(w);
  const Tensor terms = absolute_product(matrix, w) + target.detach().to(at::kDouble).abs();
  const Tensor residual =
      (matrix.detach().to(at::kDouble).mv(w.detach().to(at::kDouble)) - target.detach().to(at::kDouble))
          .abs();
  const double own = accumulated(matrix.size(1) + 1, epsilon);
  const double later = accumulated(matrix.size(0) + 4, epsilon);  // the sum over rows and the factors
  // `residual` is itself computed; `own * terms` is more than its error, which is in double precision.
  return factor * norm_above(absolute_product(matrix.t(), own * terms + later * (residual + own * terms)));
}

}  // namespace bilevel
