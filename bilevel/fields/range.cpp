#include "bilevel/fields/range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace bilevel {
namespace {

bool only_digits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Not 010, which some read as eight.
bool is_whole_text(const std::string& text) {
  const std::string digits = text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
  return only_digits(digits) && (digits.size() == 1 || digits.front() != '0');
}

void require_in_range(const std::string& text, const Range& range, bool whole) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool number = !text.empty() && *end == '\0' && (whole ? is_whole_text(text) : std::isfinite(value));
  if (number && range.holds(value)) return;
  const std::string bound = range.text(whole, std::isfinite(value) && std::abs(value) > bounds::any);
  if (number) throw std::invalid_argument("must be " + bound);
  throw std::invalid_argument(std::string("must be ") + (whole ? "a whole number" : "a finite number") +
                              (bound.empty() ? "" : ", " + bound));
}

}  // namespace

bool Range::holds(double value) const {
  return (without_least ? value > least : value >= least) && (without_most ? value < most : value <= most);
}

std::string Range::text(bool whole, bool beyond) const {
  const auto number = [&](double bound) {
    return whole ? fmt::format("{:.0f}", bound) : fmt::format("{:.2g}", bound);
  };
  std::string result;
  if (least > -bounds::any || beyond) result = (without_least ? "above " : "at least ") + number(least);
  if (most == bounds::any && !beyond) return result;
  return result + (result.empty() ? "" : " and ") + (without_most ? "below " : "at most ") + number(most);
}

void require_whole(const std::string& text, const Range& range) { require_in_range(text, range, true); }
void require_number(const std::string& text, const Range& range) { require_in_range(text, range, false); }

void require_seed(const std::string& text) {
  errno = 0;
  if (only_digits(text) && (text.size() == 1 || text.front() != '0')) {
    (void)std::strtoull(text.c_str(), nullptr, 10);
    if (errno == 0) return;
  }
  throw std::invalid_argument(
      fmt::format("must be a whole number, 0 to {}", std::numeric_limits<uint64_t>::max()));
}

}  // namespace bilevel
