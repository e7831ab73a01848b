#include "bilevel/core/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "bilevel/core/require.h"

namespace bilevel {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 5> names{"constant", "inverse-sqrt", "cosine", "linear", "power"};

bool has_end(ScheduleKind kind) { return kind == ScheduleKind::cosine || kind == ScheduleKind::linear; }

}  // namespace

ScheduleKind parse_schedule_kind(std::string_view name) {
  const auto* const found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    refuse_unknown("schedule", name, {names.begin(), names.end()});
  }
  return static_cast<ScheduleKind>(found - names.begin());
}

std::string_view schedule_kind_name(ScheduleKind kind) { return names.at(static_cast<size_t>(kind)); }

void Schedule::validate() const {
  if (has_end(kind) && total_steps < 1) {
    throw std::invalid_argument(fmt::format(
        "Schedule: total_steps = {}: must be at least 1 for the {} schedule; set it to the number of "
        "steps of the run",
        total_steps, schedule_kind_name(kind)));
  }
  if (!(final_fraction >= 0 && final_fraction <= 1)) {
    throw std::invalid_argument(fmt::format(
        "Schedule: final_fraction = {}: must be 0 to 1: it is a part of the base rate", final_fraction));
  }
  if (!(exponent > 0 && exponent <= 1)) {
    throw std::invalid_argument(
        fmt::format("Schedule: exponent = {}: must be above 0 and at most 1: the steps of a faster fall have "
                    "a finite sum",
                    exponent));
  }
}

double Schedule::factor(int64_t step) const {
  require_at_least("Schedule: step", step, 0);
  validate();
  if (kind == ScheduleKind::constant) return 1;
  if (kind == ScheduleKind::inverse_sqrt) return 1 / std::sqrt(static_cast<double>(step) + 1);
  if (kind == ScheduleKind::power) return std::pow(static_cast<double>(step) + 1, -exponent);
  const double done = static_cast<double>(std::min(step, total_steps)) / static_cast<double>(total_steps);
  const double left = kind == ScheduleKind::linear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return final_fraction + (1 - final_fraction) * left;
}

}  // namespace bilevel
