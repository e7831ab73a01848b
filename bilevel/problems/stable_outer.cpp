#include "bilevel/problems/stable_outer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bilevel/core/require.h"

namespace bilevel {
namespace {

constexpr double largest_rate_curvature = 1.8;  // of 2, where gradient descent would diverge

}  // namespace

double largest_stable_log(double rate, double curvature_of_data, double scale, double first) {
  require_nonnegative("stable_rate", rate);
  if (rate == 0) return std::numeric_limits<double>::infinity();
  const double room = largest_rate_curvature / rate - curvature_of_data;
  return room > 0 ? std::max(first, std::log(room / scale)) : first;
}

}  // namespace bilevel
