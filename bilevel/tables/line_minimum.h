#pragma once
// The minimum of a function of one number within an interval, by golden sections: no derivatives, and the
// same number of evaluations whatever the function is.

#include <functional>

namespace bilevel {

struct LineMinimum {
  double at = 0, value = 0;
};
// To within `width`. Where there are several minima, one of them.
LineMinimum line_minimum(const std::function<double(double)>& function, double low, double high,
                         double width);

}  // namespace bilevel
