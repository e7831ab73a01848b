#include "bilevel/algorithms/option_fields.h"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

namespace bilevel {

std::string word_of(const Schedule& schedule) {
  const std::string kind(schedule_kind_name(schedule.kind));
  const bool own = schedule.kind == ScheduleKind::power && schedule.exponent != Schedule{}.exponent;
  return own ? fmt::format("{}:{}", kind, schedule.exponent) : kind;
}

void read_word(const std::string& word, Schedule& schedule) {
  const std::string power = "power:";
  if (!word.starts_with(power)) {
    schedule.kind = parse_schedule_kind(word);
    return;
  }
  const std::string exponent = word.substr(power.size());
  char* end = nullptr;
  Schedule read{.kind = ScheduleKind::power, .exponent = std::strtod(exponent.c_str(), &end)};
  if (exponent.empty() || *end != '\0') throw std::invalid_argument("the exponent must be a number");
  read.validate();
  schedule = read;
}

const char* const schedule_words = "constant, inverse-sqrt, cosine, linear, power or power:EXPONENT (0.5)";

const Fields<InnerOptions>& inner_fields() {
  static const Fields<InnerOptions> table = [] {
    using O = InnerOptions;
    Fields<O> f;
    add_inner_steps(
        f, [](O & o) -> auto& { return o.steps; });
    add_inner_rate(
        f, [](O & o) -> auto& { return o.rate; });
    f.add(
        "inner_optimizer", [](O & o) -> auto& { return o.optimizer; },
        "inner optimiser: gd, heavy-ball, nesterov or adam");
    f.add(
         "inner_momentum", [](O & o) -> auto& { return o.momentum; }, "momentum of heavy-ball and nesterov")
        .in(from_0_below_1());
    f.add(
         "inner_clip", [](O & o) -> auto& { return o.clip_norm; },
         "clip inner gradients to this norm; 0 = no clipping")
        .in(at_least(0));
    f.add(
        "inner_schedule", [](O & o) -> auto& { return o.schedule; }, schedule_words);
    return f;
  }();
  return table;
}

const Fields<OuterOptions>& outer_fields() {
  static const Fields<OuterOptions> table = [] {
    using O = OuterOptions;
    Fields<O> f;
    f.add(
         "outer_rate", [](O & o) -> auto& { return o.rate; }, "rate of the outer steps")
        .in(above(0))
        .by_rule()
        .first();
    f.add(
         "outer_optimizer", [](O & o) -> auto& { return o.optimizer; }, "outer optimiser: sgd or adam")
        .by_rule();
    f.add(
         "outer_momentum", [](O & o) -> auto& { return o.momentum; }, "momentum of sgd")
        .in(from_0_below_1());
    f.add(
        "outer_schedule", [](O & o) -> auto& { return o.schedule; }, schedule_words);
    return f;
  }();
  return table;
}

const Fields<CurvatureOptions>& matrix_fields() {
  static const Fields<CurvatureOptions> table =
      CurvatureOptions::fields().without({"difference_hessian", "difference_cross", "difference_step"});
  return table;
}

}  // namespace bilevel
