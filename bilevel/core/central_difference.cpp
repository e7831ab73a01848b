#include "bilevel/core/central_difference.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "bilevel/core/finite.h"

namespace bilevel {

Tensor central_difference(const std::function<Tensor(const Tensor& w)>& gradient, const Tensor& w,
                          const Tensor& v, double step, const FiniteChecks* checks) {
  if (checks != nullptr && checks->puts_off(v)) {
    const Tensor length = v.norm();
    const Tensor move = step / length.clamp_min(1e-30);  // of v = 0 the difference is 0 whatever this is
    return (gradient(w + move * v) - gradient(w - move * v)) / (2 * move);
  }
  const double norm = v.norm().item<double>();
  if (norm == 0) return {};
  // The failure is the vector's: a loss at w + NaN would blame the inner loop.
  if (!std::isfinite(norm)) return at::full_like(gradient(w), std::numeric_limits<double>::quiet_NaN());
  const double epsilon = step / norm;
  const Tensor above = gradient(at::add(w, v, epsilon));
  const Tensor below = gradient(at::add(w, v, -epsilon));
  return (above - below) / (2 * epsilon);
}

}  // namespace bilevel
