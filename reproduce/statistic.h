#pragma once
// Mean and spread of what several seeds gave.

#include <cstdint>
#include <string>
#include <vector>

namespace bilevel::reproduce {

struct Statistic {
  double mean = 0, deviation = 0;  // of the sample, n - 1; NaN where there are too few
  int64_t count = 0;
  std::string text(int digits = 2) const;  // "93.58 ± 0.32", "93.58" of one, "-" of none
};
Statistic statistic(const std::vector<double>& values);

}  // namespace bilevel::reproduce
