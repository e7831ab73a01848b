#include "bilevel/core/require.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace bilevel {
namespace {

template <typename T>
void require_option(bool holds, std::string_view option, T value, std::string_view bound) {
  if (!holds) throw std::invalid_argument(fmt::format("{} = {}: must be {}", option, value, bound));
}

std::string owned(std::string_view owner, std::string_view option) {
  return fmt::format("{}: {}", owner, option);
}

}  // namespace

void require(bool holds, std::string_view option, double value, std::string_view bound) {
  require_option(holds, option, value, bound);
}
void require(bool holds, std::string_view option, int64_t value, std::string_view bound) {
  require_option(holds, option, value, bound);
}

void require_at_least(std::string_view option, int64_t value, int64_t least) {
  if (value < least) require(false, option, value, fmt::format("at least {}", least));
}
void require_between(std::string_view option, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) require(false, option, value, fmt::format("{} to {}", least, most));
}
void require_positive(std::string_view option, double value) {
  require(value > 0 && std::isfinite(value), option, value, "finite and above 0");
}
void require_nonnegative(std::string_view option, double value) {
  require(value >= 0 && std::isfinite(value), option, value, "finite and at least 0");
}
void require_below_one(std::string_view option, double value) {
  require(value >= 0 && value < 1, option, value, "at least 0 and below 1");
}
void require_between_0_and_1(std::string_view option, double value) {
  require(value > 0 && value < 1, option, value, "above 0 and below 1");
}

void require_at_least(std::string_view owner, std::string_view option, int64_t value, int64_t least) {
  if (value < least) require_at_least(owned(owner, option), value, least);
}
void require_positive(std::string_view owner, std::string_view option, double value) {
  if (!(value > 0 && std::isfinite(value))) require_positive(owned(owner, option), value);
}
void require_nonnegative(std::string_view owner, std::string_view option, double value) {
  if (!(value >= 0 && std::isfinite(value))) require_nonnegative(owned(owner, option), value);
}
void require_below_one(std::string_view owner, std::string_view option, double value) {
  if (!(value >= 0 && value < 1)) require_below_one(owned(owner, option), value);
}

void refuse_unknown(std::string_view what, std::string_view name, const std::vector<std::string>& choices) {
  throw std::invalid_argument(
      fmt::format("{} '{}' is unknown: choose from {}", what, name, fmt::join(choices, ", ")));
}

}  // namespace bilevel
