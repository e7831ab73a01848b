#include "bilevel/tables/line_minimum.h"

#include <cmath>

namespace bilevel {

LineMinimum line_minimum(const std::function<double(double)>& function, double low, double high,
                         double width) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  const auto evaluate = [&](double at) { return LineMinimum{at, function(at)}; };
  LineMinimum left = evaluate(high - golden * (high - low));
  LineMinimum right = evaluate(low + golden * (high - low));
  while (high - low > width) {
    if (left.value <= right.value) {
      high = right.at;
      right = left;
      left = evaluate(high - golden * (high - low));
    } else {
      low = left.at;
      left = right;
      right = evaluate(low + golden * (high - low));
    }
  }
  return left.value <= right.value ? left : right;
}

}  // namespace bilevel
