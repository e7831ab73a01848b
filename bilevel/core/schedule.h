#pragma once
// How a rate falls along a run, as a value: the factor that multiplies the base rate at a step. Inner and
// outer optimisers share it.

#include <cstdint>
#include <string_view>

namespace bilevel {

enum class ScheduleKind { constant, inverse_sqrt, cosine, linear, power };

// "constant", "inverse-sqrt", "cosine", "linear", "power"; anything else throws std::invalid_argument that
// lists them.
ScheduleKind parse_schedule_kind(std::string_view name);
std::string_view schedule_kind_name(ScheduleKind kind);

struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;  // a rate that is right needs no schedule
  int64_t total_steps =
      0;  // cosine, linear: the step at which the end is reached; >= 1 there, unused elsewhere
  double final_fraction =
      0;  // cosine, linear: the factor at the end and after it, in [0, 1]; 0 = fall to nothing

  double exponent = 0.5;  // power: how fast it falls, in (0, 1]; TTSA takes 3/5 outside and 2/5 inside

  // Of the steps 0, 1, 2, ...; factor(0) is 1 for every kind.
  //   constant      1
  //   inverse_sqrt  1 / sqrt(step + 1)
  //   cosine        final + (1 - final) (1 + cos(pi t)) / 2,   t = min(step / total_steps, 1)
  //   linear        final + (1 - final) (1 - t)
  //   power         (step + 1)^-exponent
  double factor(int64_t step) const;
  void validate() const;  // throws std::invalid_argument
};

}  // namespace bilevel
