// The reference for small systems: the matrix itself, one product a column, and a factorisation that says
// what kind of matrix it was.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/require.h"
#include "bilevel/core/solver_support.h"

namespace bilevel {
namespace {

constexpr std::string_view direct_name = "direct_solve";

// Whether some pivot is nothing but rounding beside the largest.
bool nearly_singular(const Tensor& pivots, double rounding) {
  const Tensor sizes = pivots.abs();
  return !(sizes.min().item<double>() > rounding * sizes.max().item<double>());
}

// Through the eigenvalues, leaving out those that are zero to rounding: the least-squares solution of
// smallest norm, which is the solution where there is one.
Tensor solve_by_eigenvalues(const Tensor& a, const Tensor& b, double rounding, Status& status) {
  const auto [values, vectors] = at::linalg_eigh(a);
  const Tensor sizes = values.abs();
  const Tensor kept = sizes > rounding * sizes.max();
  const bool regular = kept.all().item<bool>();
  const bool negative = at::logical_and(kept, values < 0).any().item<bool>();
  if (!regular) {
    status = Status::breakdown;
  } else {
    status = negative ? Status::negative_curvature : Status::converged;
  }
  const Tensor inverses = at::where(kept, at::reciprocal(values), at::zeros_like(values));
  return at::mv(vectors, at::mv(vectors.t(), b).mul_(inverses));
}

// In double precision throughout; `rounding` is that of the entries, relative to the largest eigenvalue.
Tensor factorise_and_solve(const Tensor& a, const Tensor& b, double rounding, Status& status) {
  const Tensor column = b.unsqueeze(1);
  const auto [lower, failed_minor] = at::linalg_cholesky_ex(a);
  if (failed_minor.item<int64_t>() == 0) {
    // Pivots of A are squares of the factor's diagonal.
    if (!nearly_singular(lower.diagonal().square(), rounding)) {
      status = Status::converged;
      return at::cholesky_solve(column, lower).squeeze(1);
    }
    return solve_by_eigenvalues(a, b, rounding, status);
  }
  const auto [factors, pivots, info] = at::linalg_lu_factor_ex(a);
  if (!nearly_singular(factors.diagonal(), rounding)) {
    status = Status::negative_curvature;
    return at::linalg_lu_solve(factors, pivots, column).squeeze(1);
  }
  return solve_by_eigenvalues(a, b, rounding, status);
}

}  // namespace

void DirectOptions::validate() const {
  require_at_least(direct_name, "limit", limit, 1);
  require_nonnegative(direct_name, "damping", damping);
}

LinearResult direct_solve(const MatrixProduct& matrix, const Tensor& right_hand_side,
                          const DirectOptions& options) {
  options.validate();
  const Tensor b = detail::checked_right_hand_side(direct_name, right_hand_side);
  const int64_t size = b.numel();
  if (size > options.limit) {
    throw std::invalid_argument(
        fmt::format("{}: {} unknowns exceed limit = {}; use conjugate_gradient, or raise the limit (the "
                    "matrix takes {:.1f} GB)",
                    direct_name, size, options.limit,
                    static_cast<double>(size) * static_cast<double>(size) *
                        static_cast<double>(b.element_size()) * 1e-9));
  }
  const double b_norm = detail::norm_of(b);
  LinearResult result;
  // A zero b is solved like any other: the status still says what kind of matrix it met.
  if (size == 0 || !std::isfinite(b_norm)) {
    detail::ends_before_it_begins(b, b_norm, result);
    return result;
  }

  Tensor a = assemble(matrix, size, b.options()).to(at::kDouble);
  if (options.damping != 0) a.diagonal().add_(options.damping);
  result.products = size;
  result.iterations = size;
  result.vectors_kept = size + 1;
  result.residuals.push_back(b_norm);
  result.right_hand_side_norm = b_norm;
  if (!at::isfinite(a).all().item<bool>()) {
    result.status = Status::not_finite;
    result.solution = at::full_like(b, std::numeric_limits<double>::quiet_NaN());
    result.relative_residual = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  const double rounding =
      std::max(4 * detail::epsilon_of(b), static_cast<double>(size) * std::numeric_limits<double>::epsilon());
  const Tensor b_double = b.to(at::kDouble);
  result.solution = factorise_and_solve(a, b_double, rounding, result.status).to(b.scalar_type());
  result.residuals.push_back(detail::norm_of(at::addmv(b_double, a, result.solution.to(at::kDouble), 1, -1)));
  result.relative_residual = b_norm == 0 ? 0.0 : result.residuals.back() / b_norm;
  return result;
}

Tensor assemble(const MatrixProduct& matrix, int64_t size, const at::TensorOptions& options) {
  constexpr std::string_view name = "assemble";
  require_at_least(name, "size", size, 1);
  detail::require_float_or_double(name, "options", at::typeMetaToScalarType(options.dtype()));
  Tensor rows = at::empty({size, size}, options.requires_grad(c10::nullopt));
  Tensor unit = at::zeros({size}, options.requires_grad(c10::nullopt));
  for (int64_t i = 0; i < size; ++i) {
    unit.select(0, i).fill_(1);
    rows.select(0, i).copy_(detail::checked_product(name, matrix(unit), unit));
    unit.select(0, i).fill_(0);
  }
  return rows.add(rows.t()).mul_(0.5);
}

}  // namespace bilevel
