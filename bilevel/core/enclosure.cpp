#include "bilevel/core/enclosure.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bilevel/core/rounding.h"

namespace bilevel {
namespace {

constexpr double double_epsilon = std::numeric_limits<double>::epsilon();
constexpr double unbounded = std::numeric_limits<double>::infinity();
constexpr int most_trials = 30;

Tensor as_double(const Tensor& matrix) {
  return matrix.detach().to(at::TensorOptions().dtype(at::kDouble).device(at::kCPU));
}

bool is_factorised(const Tensor& a) {
  const auto [factor, info] = at::linalg_cholesky_ex(a);
  return info.item<int>() == 0 && at::isfinite(factor).all().item<bool>();
}

double below_smallest(const Tensor& a) {
  const int64_t n = a.size(0);
  const double guess = at::linalg_eigvalsh(a)[0].item<double>();
  const Tensor diagonal = a.diagonal();
  const double gamma = accumulated(n + 1, double_epsilon);
  if (!(gamma < 0.5)) return -unbounded;
  const double size = diagonal.abs().max().item<double>() + std::abs(guess);
  double margin = std::max(gamma * size, std::numeric_limits<double>::min());
  for (int trial = 0; trial < most_trials; ++trial, margin *= 4) {
    const double c = guess - margin;
    const Tensor shifted = a - c * at::eye(n, a.options());
    if (!is_factorised(shifted)) continue;
    const double trace = shifted.diagonal().sum().item<double>() * (1 + accumulated(n, double_epsilon));
    // The shift rounds each number on the diagonal once, and so does this expression.
    return c - gamma / (1 - gamma) * trace - 4 * double_epsilon * (size + std::abs(c));
  }
  return -unbounded;
}

}  // namespace

double smallest_eigenvalue_below(const Tensor& matrix) {
  const Tensor a = as_double(matrix);
  if (!at::isfinite(a).all().item<bool>()) return -unbounded;
  const Tensor symmetric = 0.5 * (a + a.t());
  return below_smallest(symmetric) - double_epsilon * norm_above(symmetric);
}

double largest_eigenvalue_above(const Tensor& matrix) { return -smallest_eigenvalue_below(-matrix); }

double squared_norm_above(const Tensor& matrix) {
  const Tensor a = as_double(matrix);
  const bool wide = a.size(0) < a.size(1);
  const Tensor gram = wide ? a.mm(a.t()) : a.t().mm(a);
  const double frobenius = norm_above(a);
  return std::max(largest_eigenvalue_above(gram), 0.0) +
         accumulated(wide ? a.size(1) : a.size(0), double_epsilon) * frobenius * frobenius;
}

}  // namespace bilevel
