#include "bilevel/algorithms/ttsa.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/algorithms/option_fields.h"

namespace bilevel {
namespace {

Schedule falling(double exponent) { return {.kind = ScheduleKind::power, .exponent = exponent}; }

BsaOptions steps_of(const TtsaOptions& options) {
  options.validate();
  BsaOptions steps{.inner = options.inner, .outer = options.outer, .series = options.series};
  steps.inner.steps = 1;
  steps.inner.schedule = falling(options.inner_exponent);
  steps.outer.schedule = falling(options.outer_exponent);
  return steps;
}

}  // namespace

void TtsaOptions::validate() const {
  inner.validate();
  series.validate("ttsa");
  falling(inner_exponent).validate();
  falling(outer_exponent).validate();
  if (outer_exponent < inner_exponent) {
    throw std::invalid_argument(
        fmt::format("ttsa: outer_exponent = {}: must be at least inner_exponent = {}, or w cannot follow x",
                    outer_exponent, inner_exponent));
  }
}

const Fields<TtsaOptions>& TtsaOptions::fields() {
  static const Fields<TtsaOptions> table = [] {
    using O = TtsaOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.inner; }, inner_fields().without({"inner_steps", "inner_schedule"}));
    f.include(
        [](O & o) -> auto& { return o.series; }, RandomizedSeriesOptions::fields());
    f.add(
         "inner_exponent", [](O & o) -> auto& { return o.inner_exponent; },
         "exponent of the inner rate's fall")
        .in(above(0, 1));
    f.add(
         "outer_exponent", [](O & o) -> auto& { return o.outer_exponent; },
         "exponent of the outer rate's fall")
        .in(above(0, 1));
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields().without({"outer_schedule"}));
    return f;
  }();
  return table;
}

Ttsa::Ttsa(const TtsaOptions& options) : Bsa(steps_of(options)) {}

}  // namespace bilevel
