#include "bilevel/problems/stable_outer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace bilevel {
namespace {

constexpr double largest_rate_curvature = 1.8;  // of 2, where gradient descent would diverge

}  // namespace

double largest_stable_log(double rate, double curvature_of_data, double scale, double first) {
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw std::invalid_argument(fmt::format("stable_rate = {}: must be finite and at least 0", rate));
  }
  if (rate == 0) return std::numeric_limits<double>::infinity();
  const double room = largest_rate_curvature / rate - curvature_of_data;
  return room > 0 ? std::max(first, std::log(room / scale)) : first;
}

}  // namespace bilevel
