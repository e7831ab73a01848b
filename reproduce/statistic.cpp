#include "reproduce/statistic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

namespace bilevel::reproduce {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Statistic statistic(const std::vector<double>& values) {
  std::vector<double> known;
  std::copy_if(values.begin(), values.end(), std::back_inserter(known),
               [](double value) { return std::isfinite(value); });
  Statistic s{nothing, nothing, static_cast<int64_t>(known.size())};
  if (known.empty()) return s;
  const auto n = static_cast<double>(known.size());
  s.mean = std::accumulate(known.begin(), known.end(), 0.0) / n;
  if (known.size() < 2) return s;
  double squares = 0;
  for (const double value : known) squares += (value - s.mean) * (value - s.mean);
  s.deviation = std::sqrt(squares / (n - 1));
  return s;
}

std::string Statistic::text(int digits) const {
  if (count == 0) return "-";
  if (count == 1) return fmt::format("{:.{}f}", mean, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", mean, digits, deviation, digits);
}

}  // namespace bilevel::reproduce
