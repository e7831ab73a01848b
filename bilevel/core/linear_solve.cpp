// The parts that all linear solves share: names, the residual of what was returned, and the checks.
#include "bilevel/core/linear_solve.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

#include "bilevel/core/solver_support.h"

namespace bilevel {

std::string_view name_of(Status status) {
  switch (status) {
    case Status::not_run:
      return "not_run";
    case Status::ok:
      return "ok";
    case Status::converged:
      return "converged";
    case Status::max_iterations:
      return "max_iterations";
    case Status::breakdown:
      return "breakdown";
    case Status::negative_curvature:
      return "negative_curvature";
    case Status::diverged:
      return "diverged";
    case Status::not_finite:
      return "not_finite";
  }
  throw std::invalid_argument(fmt::format("name_of: status = {} is not a Status", static_cast<int>(status)));
}

namespace detail {
namespace {

std::string shape_of(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

// Shape, dtype and device of a tensor that must look like another one.
void require_like(std::string_view solver, std::string_view what, const Tensor& given, const Tensor& wanted) {
  if (!given.defined()) throw std::invalid_argument(fmt::format("{}: {} is undefined", solver, what));
  if (given.sizes() != wanted.sizes() || given.scalar_type() != wanted.scalar_type() ||
      given.device() != wanted.device()) {
    throw std::invalid_argument(
        fmt::format("{}: {} is {} {} on {}, must be {} {} on {} like the right-hand side", solver, what,
                    shape_of(given), at::toString(given.scalar_type()), given.device().str(),
                    shape_of(wanted), at::toString(wanted.scalar_type()), wanted.device().str()));
  }
}

}  // namespace

void require_float_or_double(std::string_view solver, std::string_view what, at::ScalarType type) {
  if (type != at::kFloat && type != at::kDouble) {
    throw std::invalid_argument(
        fmt::format("{}: {} of type {} must be Float or Double", solver, what, at::toString(type)));
  }
}

Tensor checked_right_hand_side(std::string_view solver, const Tensor& b) {
  if (!b.defined()) throw std::invalid_argument(fmt::format("{}: the right-hand side is undefined", solver));
  if (b.dim() != 1) {
    throw std::invalid_argument(
        fmt::format("{}: the right-hand side has shape {}, must have one dimension", solver, shape_of(b)));
  }
  require_float_or_double(solver, "the right-hand side", b.scalar_type());
  return b.detach();
}

Tensor checked_warm_start(std::string_view solver, const Tensor& warm_start, const Tensor& b) {
  if (!warm_start.defined()) return {};
  require_like(solver, "warm_start", warm_start, b);
  return warm_start.detach();
}

Tensor checked_product(std::string_view solver, const Tensor& product, const Tensor& argument) {
  require_like(solver, "the matrix product", product, argument);
  return product.detach();
}

double epsilon_of(const Tensor& v) {
  return v.scalar_type() == at::kFloat ? static_cast<double>(std::numeric_limits<float>::epsilon())
                                       : std::numeric_limits<double>::epsilon();
}

double norm_of(const Tensor& v) {
  const double norm = at::linalg_vector_norm(v, 2).item<double>();
  // Squares of floats are lost below 1e-19 and above 1e19; double costs more and is rarely needed.
  if (v.scalar_type() == at::kDouble || (norm > 1e-15 && norm < 1e15)) return norm;
  return at::linalg_vector_norm(v.to(at::kDouble), 2).item<double>();
}

double scale_near(double norm) {
  if (!std::isfinite(norm) || norm == 0) return 1.0;
  // Beyond 2^120 the inverse would leave the range of a float.
  return std::ldexp(1.0, std::clamp(std::ilogb(norm), -120, 120));
}

std::vector<double> read(at::TensorList scalars) {
  std::vector<double> values;
  values.reserve(scalars.size());
  if (scalars.empty()) return values;
  if (scalars[0].is_cpu()) {
    for (const Tensor& scalar : scalars) values.push_back(scalar.item<double>());
    return values;
  }
  const Tensor host = at::stack(scalars).to(at::kCPU, at::kDouble);
  const double* data = host.data_ptr<double>();
  values.assign(data, data + host.numel());
  return values;
}

bool ends_before_it_begins(const Tensor& b, double b_norm, LinearResult& result) {
  if (std::isfinite(b_norm) && b_norm != 0) return false;
  const bool zero = b_norm == 0;
  result.solution = zero ? at::zeros_like(b) : at::full_like(b, std::numeric_limits<double>::quiet_NaN());
  result.status = zero ? Status::converged : Status::not_finite;
  result.residuals = {b_norm};
  result.right_hand_side_norm = b_norm;
  result.relative_residual = zero ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  result.vectors_kept = 1;
  return true;
}

}  // namespace detail
}  // namespace bilevel
