// Conjugate gradients (Hestenes and Stiefel 1952) on a matrix-vector product: one product and one read of the
// device per step. The residual is the recurred one; checking it against b - A v would cost another product.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/core/fused_vectors.h"
#include "bilevel/core/linear_solve.h"
#include "bilevel/core/require.h"
#include "bilevel/core/solver_support.h"

namespace bilevel {
namespace {

constexpr std::string_view cg_name = "conjugate_gradient";

// What d'Ad / d'd says about A, relative to the largest one met so far. Within rounding of zero its sign
// means nothing, but a positive semi-definite A with d'Ad = 0 has Ad = 0: where Ad is not small, A must be
// indefinite.
Status status_of_curvature(double curvature, double largest, const std::function<double()>& product_norm,
                           double direction_norm, double epsilon) {
  if (!std::isfinite(curvature)) return Status::not_finite;
  if (curvature > 10 * epsilon * largest) return Status::ok;
  if (curvature < -64 * epsilon * largest) return Status::negative_curvature;
  const double stretch = product_norm() / direction_norm;
  return stretch > 10 * std::sqrt(epsilon) * largest ? Status::negative_curvature : Status::breakdown;
}

}  // namespace

void KrylovSolveOptions::validate(std::string_view name) const {
  require_at_least(name, "max_iterations", max_iterations, 0);
  require_nonnegative(name, "relative_tolerance", relative_tolerance);
  require_nonnegative(name, "damping", damping);
}

LinearResult conjugate_gradient(const MatrixProduct& matrix, const Tensor& right_hand_side,
                                const KrylovSolveOptions& options) {
  options.validate(cg_name);
  const Tensor b = detail::checked_right_hand_side(cg_name, right_hand_side);
  const Tensor start = detail::checked_warm_start(cg_name, options.warm_start, b);
  const double epsilon = detail::epsilon_of(b);
  const double b_norm = detail::norm_of(b);
  LinearResult result;
  if (detail::ends_before_it_begins(b, b_norm, result)) return result;
  result.right_hand_side_norm = b_norm;

  const auto undamped = [&](const Tensor& v) {
    ++result.products;
    return detail::checked_product(cg_name, matrix(v), v);
  };

  // Residuals and directions are kept in units of `scale`, the solution in its own.
  const double scale = detail::scale_near(b_norm);
  Tensor x = start.defined() ? start.clone() : at::zeros_like(b);
  Tensor r = start.defined() ? at::sub(b, undamped(x)).sub_(x, options.damping).mul_(1 / scale)
                             : at::mul(b, 1 / scale);
  Tensor r_squared_on_device = at::dot(r, r);
  double r_squared = r_squared_on_device.item<double>();
  result.residuals.push_back(std::sqrt(r_squared) * scale);

  Tensor d = r.clone();
  double d_squared = r_squared;  // by recurrence: r is orthogonal to the direction before it
  double largest_curvature = 0;
  Tensor best;  // defined only while x is worse than an earlier iterate
  double best_squared = r_squared;

  // Below rounding of |b| further steps would divide noise by noise.
  const double target = std::max(options.relative_tolerance, epsilon) * b_norm / scale;
  result.status = std::isfinite(r_squared) ? Status::max_iterations : Status::not_finite;
  while (result.status == Status::max_iterations) {
    if (std::sqrt(r_squared) <= target) {
      result.status = Status::converged;
      break;
    }
    if (result.iterations == options.max_iterations) break;

    // Where d'Ad is bad, r is bad and not used again.
    Tensor q = undamped(d);
    double dq, next_squared;
    const bool fused = detail::fusible({q, d, r, x});
    if (fused) {
      dq = detail::damped_dot(d, q, options.damping);
      next_squared = detail::subtract_damped(r, r_squared / dq, q, d, options.damping);
      r_squared_on_device.fill_(next_squared);  // should the next product not be fusible
    } else {
      if (options.damping != 0) q = at::add(q, d, options.damping);
      const Tensor dq_on_device = at::dot(d, q);
      r.addcmul_(q, r_squared_on_device / dq_on_device, -1);
      r_squared_on_device = at::dot(r, r);
      const std::vector<double> dots = detail::read({dq_on_device, r_squared_on_device});
      dq = dots[0];
      next_squared = dots[1];
    }
    const double curvature = dq / d_squared;
    const auto stretched = [&] {  // |A d|
      return detail::norm_of(fused && options.damping != 0 ? at::add(q, d, options.damping) : q);
    };
    const Status curvature_status =
        status_of_curvature(curvature, largest_curvature, stretched, std::sqrt(d_squared), epsilon);
    if (curvature_status != Status::ok || !std::isfinite(next_squared)) {
      result.status = curvature_status != Status::ok ? curvature_status : Status::not_finite;
      break;
    }
    largest_curvature = std::max(largest_curvature, curvature);

    if (next_squared <= best_squared) {
      best.reset();
      best_squared = next_squared;
    } else if (!best.defined()) {
      best = x.clone();
      result.vectors_kept = 1;
    }
    const double step = r_squared / dq * scale, ratio = next_squared / r_squared;
    if (fused) {
      detail::step_and_turn(x, step, d, r, ratio);
    } else {
      x.add_(d, step);
      at::add_out(d, r, d, ratio);
    }
    d_squared = next_squared + ratio * ratio * d_squared;
    r_squared = next_squared;
    result.residuals.push_back(std::sqrt(r_squared) * scale);
    ++result.iterations;
  }

  result.vectors_kept += 4 + (options.damping == 0 || detail::fusible({r, d, x}) ? 0 : 1);
  if (result.status == Status::converged || result.status == Status::max_iterations) {
    result.solution = std::move(x);
  } else {
    result.solution = best.defined() ? std::move(best) : std::move(x);
    r_squared = best_squared;
  }
  result.relative_residual = std::sqrt(r_squared) * scale / b_norm;
  // A singular but consistent system ends in its null space once the residual is rounding: that is solved.
  const bool rounding = result.relative_residual <= 100 * epsilon;
  if (result.status == Status::breakdown && rounding) result.status = Status::converged;
  return result;
}

}  // namespace bilevel
