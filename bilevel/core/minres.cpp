// MINRES (Paige and Saunders, "Solution of sparse indefinite systems of linear equations", 1975): Lanczos
// vectors v_1, v_2, ... with A V = V T, and the QR factorisation of T by one Givens rotation a step.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/core/fused_vectors.h"
#include "bilevel/core/linear_solve.h"
#include "bilevel/core/solver_support.h"

namespace bilevel {
namespace {
constexpr std::string_view minres_name = "minres";
}  // namespace

LinearResult minres(const MatrixProduct& matrix, const Tensor& right_hand_side,
                    const KrylovSolveOptions& options) {
  options.validate(minres_name);
  const Tensor b = detail::checked_right_hand_side(minres_name, right_hand_side);
  const Tensor start = detail::checked_warm_start(minres_name, options.warm_start, b);
  const double epsilon = detail::epsilon_of(b);
  const double b_norm = detail::norm_of(b);
  LinearResult result;
  if (detail::ends_before_it_begins(b, b_norm, result)) return result;
  result.right_hand_side_norm = b_norm;

  const auto product = [&](const Tensor& v) {
    ++result.products;
    return detail::checked_product(minres_name, matrix(v), v);
  };

  Tensor x = start.defined() ? start.clone() : at::zeros_like(b);
  Tensor v = start.defined() ? at::sub(b, product(x)) : b.clone();
  if (start.defined() && options.damping != 0) v.sub_(x, options.damping);
  double residual = detail::norm_of(v);
  result.residuals.push_back(residual);
  Tensor v_before = at::zeros_like(v);  // becomes A v - beta v_before, then the next v
  Tensor w = at::zeros_like(v);         // directions: x_k = x_{k-1} + phi_k w_k
  Tensor w_before = at::zeros_like(v);
  if (residual > 0) {
    // By a power of two first: the inverse of a tiny float's norm is not a float.
    const double scale = detail::scale_near(residual);
    v.mul_(1 / scale).div_(residual / scale);
  }

  double beta = 0;                      // T(k, k-1)
  double cosine = -1, sine = 0;         // the rotation before this one
  double delta_bar = 0, epsilon_k = 0;  // what earlier rotations left above the diagonal of R
  double largest_column = 0;            // of T: estimates |A|
  const double target = std::max(options.relative_tolerance, epsilon) * b_norm;
  // No further step lowers the residual: either it is rounding, or b is not in the range of A.
  const auto status_at_least_squares = [&] {
    return residual <= 100 * epsilon * b_norm ? Status::converged : Status::breakdown;
  };
  result.status = std::isfinite(residual) ? Status::max_iterations : Status::not_finite;
  while (result.status == Status::max_iterations) {
    if (residual <= target) {
      result.status = Status::converged;
      break;
    }
    if (result.iterations == options.max_iterations) break;

    const Tensor av = product(v);
    Tensor& next = v_before;
    const bool fused = detail::fusible({av, v, next, w, w_before, x});
    double alpha, next_beta;
    if (fused) {
      alpha = detail::lanczos_product(av, beta, v, next);
      next_beta = std::sqrt(detail::subtract_scaled(next, alpha, v));
    } else {
      at::add_out(next, av, next, -beta);
      const Tensor alpha_on_device = at::dot(v, next);
      next.addcmul_(v, alpha_on_device, -1);
      const std::vector<double> scalars = detail::read({alpha_on_device, at::linalg_vector_norm(next, 2)});
      alpha = scalars[0];
      next_beta = scalars[1];
    }
    alpha += options.damping;  // the Krylov space of A + damping I is that of A: damping enters T alone
    if (!std::isfinite(alpha) || !std::isfinite(next_beta)) {
      result.status = Status::not_finite;
      break;
    }
    largest_column = std::max(largest_column, std::hypot(beta, alpha, next_beta));
    if (next_beta <= epsilon * largest_column) next_beta = 0;  // the Krylov space is invariant: the last step

    const double delta = cosine * delta_bar + sine * alpha;
    const double gamma_bar = sine * delta_bar - cosine * alpha;
    const double next_delta_bar = -cosine * next_beta;
    const double next_epsilon = sine * next_beta;
    const double gamma = std::hypot(gamma_bar, next_beta);
    // |A r| / |r| of the iterate so far. Where it vanishes beside |A|, x is a least-squares solution.
    const double normal_residual = std::hypot(gamma_bar, next_delta_bar);
    if (normal_residual <= epsilon * largest_column) {
      result.status = status_at_least_squares();
      break;
    }
    cosine = gamma_bar / gamma;
    sine = next_beta / gamma;

    // w_{k+1} = (v - delta w_k - epsilon_k w_{k-1}) / gamma, in the memory of w_{k-1}.
    const bool may_stop = normal_residual <= std::cbrt(epsilon) * largest_column;
    const bool together = fused && !may_stop;  // with x's step
    if (together) {
      detail::turn_and_step(w_before, -epsilon_k / gamma, w, -delta / gamma, v, 1 / gamma, x,
                            cosine * residual);
    } else {
      w_before.mul_(-epsilon_k / gamma).add_(w, -delta / gamma).add_(v, 1 / gamma);
    }
    std::swap(w, w_before);
    // The residual feels |A r| by its square only, so near a least-squares solution it stands still while
    // steps along what A hardly sees grow without bound: one that costs more by rounding than it gains is not
    // taken.
    if (may_stop) {
      const double step_length = std::abs(cosine) * residual * detail::norm_of(w);
      if (residual * (1 - sine) < epsilon * largest_column * step_length) {
        result.status = status_at_least_squares();
        break;
      }
    }
    if (!together) x.add_(w, cosine * residual);
    residual *= sine;
    result.residuals.push_back(residual);
    ++result.iterations;

    if (next_beta > 0) next.div_(next_beta);
    std::swap(v, v_before);
    beta = next_beta;
    delta_bar = next_delta_bar;
    epsilon_k = next_epsilon;
  }

  result.vectors_kept = 6;
  result.relative_residual = residual / b_norm;
  result.solution = std::move(x);
  return result;
}

}  // namespace bilevel
