// The Neumann series and the fixed point of gradient descent. No step here waits for the device: norms and
// curvatures stay there until the end, unless a tolerance asks for them.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/core/finite.h"
#include "bilevel/core/fused_vectors.h"
#include "bilevel/core/linear_solve.h"
#include "bilevel/core/require.h"
#include "bilevel/core/solver_support.h"

namespace bilevel {
namespace {

constexpr std::string_view neumann = "neumann_series";
constexpr std::string_view fixed = "fixed_point";
// Curvatures are compared with this many roundings, so that a semi-definite matrix is not called indefinite.
constexpr double rounding_margin = 64;

// What the loops leave on the device, one entry a step.
struct Trace {
  std::vector<Tensor> residuals;   // |b - A v_k|
  std::vector<Tensor> curvatures;  // u'Au for the vector u that was multiplied
  std::vector<Tensor> squares;     // u'u for the same
};

// Reads the trace into result.residuals and says what it means; `finished` where it means nothing bad. All
// products have gone into `last`.
Status status_of(const Trace& trace, const Tensor& last, double rate, double scale, double b_norm,
                 Status finished, LinearResult& result) {
  const double epsilon = detail::epsilon_of(last);
  bool finite = true;
  for (const double residual : detail::read(trace.residuals)) {
    finite = finite && std::isfinite(residual);
    result.residuals.push_back(residual * scale);
  }
  const std::vector<double> curvatures = detail::read(trace.curvatures);
  const std::vector<double> squares = detail::read(trace.squares);
  bool negative = false;
  for (size_t k = 0; k < curvatures.size(); ++k) {
    finite = finite && std::isfinite(curvatures[k]);
    negative = negative || rate * curvatures[k] < -rounding_margin * epsilon * squares[k];
  }
  // Squares can overflow in a diverging series whose vectors are still finite.
  if (!finite && !at::isfinite(last).all().item<bool>()) return Status::not_finite;
  if (finished == Status::converged) return finished;
  if (negative) return Status::negative_curvature;
  if (!finite) return Status::diverged;
  const std::vector<double>& norms = result.residuals;
  if (norms.size() >= 2) {
    // A matrix with a null space keeps the norm, but for rounding.
    const double allowed = std::min(norms.front(), norms[norms.size() - 2]) * (1 + std::sqrt(epsilon));
    // A system that is solved to rounding has residuals that go up and down.
    if (norms.back() > std::max(allowed, std::sqrt(epsilon) * b_norm)) return Status::diverged;
  }
  return finished;
}

double relative(double residual, double b_norm) { return b_norm == 0 ? 0.0 : residual / b_norm; }

}  // namespace

void NeumannOptions::validate() const {
  require_at_least(neumann, "terms", terms, 0);
  require_positive(neumann, "rate", rate);
}

LinearResult neumann_series(const IndexedProduct& matrix, const Tensor& right_hand_side,
                            const NeumannOptions& options) {
  options.validate();
  const Tensor b = detail::checked_right_hand_side(neumann, right_hand_side);
  // Without a look at the device there is no scaling against overflow, and nothing to report but the sum.
  const bool blind = options.checks != nullptr && options.checks->puts_off(b);
  const double b_norm = blind ? 1.0 : detail::norm_of(b);
  const double scale = detail::scale_near(b_norm);

  LinearResult result;
  if (!std::isfinite(b_norm) && detail::ends_before_it_begins(b, b_norm, result)) return result;
  Trace trace;
  Tensor term = at::mul(b, 1 / scale);  // (I - rate A)^k b: also the residual of the sum before it
  Tensor sum = term.clone();
  trace.residuals.push_back(at::linalg_vector_norm(term, 2));
  for (int64_t k = 0; k < options.terms; ++k) {
    const Tensor product = detail::checked_product(neumann, matrix(term, k), term);
    ++result.products;
    trace.squares.push_back(trace.residuals.back().square());
    if (detail::fusible({term, product, sum}) && !product.is_alias_of(term)) {
      const auto [curvature, square] = detail::next_term(term, product, options.rate, sum);
      trace.curvatures.push_back(at::scalar_tensor(curvature, at::kDouble));
      trace.residuals.push_back(at::scalar_tensor(std::sqrt(square), at::kDouble));
      continue;
    }
    trace.curvatures.push_back(at::dot(term, product));
    term.sub_(product, options.rate);
    sum.add_(term);
    trace.residuals.push_back(at::linalg_vector_norm(term, 2));
  }
  result.solution = sum.mul_(options.rate * scale);
  result.iterations = options.terms;
  result.vectors_kept = options.terms == 0 ? 2 : 3;
  if (blind) {
    result.status = options.checks->all_finite(result.solution) ? Status::ok : Status::not_finite;
    return result;
  }
  result.status = status_of(trace, result.solution, options.rate, scale, b_norm, Status::ok, result);
  result.right_hand_side_norm = b_norm;
  result.relative_residual = relative(result.residuals.back(), b_norm);
  return result;
}

void FixedPointOptions::validate() const {
  require_at_least(fixed, "steps", steps, 0);
  require_positive(fixed, "rate", rate);
  require_nonnegative(fixed, "relative_tolerance", relative_tolerance);
}

LinearResult fixed_point(const IndexedProduct& matrix, const Tensor& right_hand_side,
                         const FixedPointOptions& options) {
  options.validate();
  const Tensor b_given = detail::checked_right_hand_side(fixed, right_hand_side);
  const Tensor start = detail::checked_warm_start(fixed, options.warm_start, b_given);
  const double b_norm = detail::norm_of(b_given);
  const double scale = detail::scale_near(b_norm);
  const double target = options.relative_tolerance * b_norm / scale;

  LinearResult result;
  if (!std::isfinite(b_norm) && detail::ends_before_it_begins(b_given, b_norm, result)) return result;
  Trace trace;
  const Tensor b = at::mul(b_given, 1 / scale);
  Tensor v = start.defined() ? at::mul(start, 1 / scale) : at::zeros_like(b);
  Tensor r = b.clone();
  bool converged = false;
  for (; result.iterations < options.steps; ++result.iterations) {
    const bool at_zero = result.iterations == 0 && !start.defined();
    if (!at_zero) {
      const Tensor product = detail::checked_product(fixed, matrix(v, result.products), v);
      ++result.products;
      if (options.relative_tolerance == 0 && detail::fusible({b, product, v, r}) && !product.is_alias_of(v)) {
        const auto [curvature, square, residual] = detail::next_iterate(b, product, options.rate, v, r);
        trace.curvatures.push_back(at::scalar_tensor(curvature, at::kDouble));
        trace.squares.push_back(at::scalar_tensor(square, at::kDouble));
        trace.residuals.push_back(at::scalar_tensor(std::sqrt(residual), at::kDouble));
        continue;
      }
      trace.curvatures.push_back(at::dot(v, product));
      trace.squares.push_back(at::dot(v, v));
      at::sub_out(r, b, product);
    }
    trace.residuals.push_back(at::linalg_vector_norm(r, 2));
    if (options.relative_tolerance > 0) {
      const double residual = trace.residuals.back().item<double>();
      converged = residual <= target;
      if (converged || !std::isfinite(residual)) break;
    }
    v.add_(r, options.rate);
  }
  result.solution = v.mul_(scale);
  result.vectors_kept = result.products == 0 ? 3 : 4;
  const Status unfinished = options.relative_tolerance > 0 ? Status::max_iterations : Status::ok;
  result.status =
      status_of(trace, r, options.rate, scale, b_norm, converged ? Status::converged : unfinished, result);
  result.right_hand_side_norm = b_norm;
  // A start that was asked for by zero steps has a residual that nothing measured, unless it is zero.
  if (result.residuals.empty() && !start.defined()) result.residuals.push_back(b_norm);
  if (!result.residuals.empty()) result.relative_residual = relative(result.residuals.back(), b_norm);
  return result;
}

}  // namespace bilevel
