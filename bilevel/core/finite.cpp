#include "bilevel/core/finite.h"

#include <ATen/ATen.h>

#include <cmath>

namespace bilevel {

bool all_finite(const Tensor& t) {
  return std::isfinite(t.sum().item<double>()) || at::isfinite(t).all().item<bool>();
}

}  // namespace bilevel
