#include "bilevel/jobs/algorithm_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "bilevel/algorithms/first_rate.h"
#include "bilevel/algorithms/options.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {

std::string word_of(OnFailure choice) { return std::string(name_of(choice)); }
void read_word(const std::string& word, OnFailure& choice) { choice = parse_on_failure(word); }

namespace {

Fields<AlgorithmChoice> algorithm_fields(bool with_choice) {
  using O = AlgorithmChoice;
  Fields<O> f;
  // In the order and under the headings of their own table.
  const auto settings_under = [&](const char* heading) {
    f.heading(heading);
    for (const Field& setting : AlgorithmSettings::fields().rows()) {
      if (setting.group != heading) continue;
      f.include(
          [](O & o) -> auto& { return o.settings; }, AlgorithmSettings::fields(), setting.name);
    }
  };
  f.heading("algorithm");
  if (with_choice) {
    f.add(
         "algorithm", [](O & o) -> auto& { return o.algorithm; }, "algorithm; `bilevel list` shows them")
        .first();
  }
  settings_under("algorithm");
  f.row("method").first();
  f.row("terms").first();
  f.add(
       "on_failure", [](O & o) -> auto& { return o.solve.on_failure; },
       "stop: end and name the cause; backtrack: go back and lower the rate that caused it; damp: go back "
       "and raise the damping")
      .one_of({"stop", "backtrack", "damp"});

  settings_under("settings of particular algorithms");

  settings_under("inner loop");
  f.add(
       "inner_batch", [](O & o) -> auto& { return o.solve.batches.inner_batch; },
       "examples in a batch of g; 0 = all")
      .in(at_least(0, bounds::examples));

  settings_under("outer steps");
  f.add(
       "outer_batch", [](O & o) -> auto& { return o.solve.batches.outer_batch; },
       "examples in a batch of f; 0 = all")
      .in(at_least(0, bounds::examples));
  f.add(
       "iterations", [](O & o) -> auto& { return o.solve.iterations; }, "largest number of outer iterations")
      .in(at_least(0, bounds::endless))
      .first();
  f.add(
       "budget_seconds", [](O & o) -> auto& { return o.solve.seconds; },
       "limit on the algorithm's own time in seconds; 0 = none")
      .in(at_least(0));
  f.add(
       "budget_calls", [](O & o) -> auto& { return o.solve.oracle_calls; },
       "limit on oracle calls (gradients and products); 0 = none")
      .in(at_least(0, bounds::endless));
  f.add(
       "tolerance", [](O & o) -> auto& { return o.solve.direction_tolerance; },
       "stop when the norm of the direction falls below this; 0 = never")
      .in(at_least(0));
  f.add(
       "records", [](O & o) -> auto& { return o.solve.records; }, "approximate number of records to keep")
      .in(at_least(1, bounds::within_step));
  return f;
}

}  // namespace

const Fields<AlgorithmChoice>& AlgorithmChoice::fields() {
  static const Fields<AlgorithmChoice> table = algorithm_fields(true);
  return table;
}

const Fields<AlgorithmChoice>& AlgorithmChoice::fields_of_settings() {
  static const Fields<AlgorithmChoice> table = algorithm_fields(false);
  return table;
}

void set_fixed_ratio_defaults(const Given& given, const Problem& problem, double longest,
                              AlgorithmChoice& choice) {
  AlgorithmSettings& s = choice.settings;
  if (!find_algorithm(choice.algorithm).fixed_ratios || given(s.outer.optimizer)) return;
  s.outer.optimizer = "sgd";
  if (given(s.outer.rate)) return;
  Oracle oracle(problem);
  const uint64_t seed = choice.solve.seed;
  const double rate =
      first_outer_rate(oracle, problem.initial_outer(named_seed(seed, "outer start")),
                       problem.initial_inner(named_seed(seed, "inner start")), s.inner.rate, longest);
  if (rate > 0) s.outer.rate = rate;
}

void refuse_ignored(const OptionsView& options, const AlgorithmChoice& choice,
                    const std::vector<std::string>& algorithms, bool chosen) {
  for (const std::string& option : algorithm_options()) {
    const bool of_diagnosis = option == "damping" || option == "curvature";
    const Field& field = options.at(option);
    if (!options.is_given(field) || (chosen && of_diagnosis)) continue;
    require_read(algorithms, choice.settings, option,
                 field.type == FieldType::flag ? "" : options.words(field).front());
  }
  if (choice.solve.on_failure != OnFailure::damp) return;
  for (const std::string& name : algorithms) {
    if (options_read(find_algorithm(name), choice.settings).contains("damping")) return;
  }
  throw OptionError(
      fmt::format("{}: there is nothing to damp in {}; choose backtrack, which lowers the rate that caused "
                  "the failure, or stop",
                  named("on_failure", "damp"), fmt::join(algorithms, ", ")));
}

void set_schedule_lengths(AlgorithmChoice& choice) {
  AlgorithmSettings& s = choice.settings;
  // A schedule with an end ends with the run; the inner steps of a warm-started loop are counted on.
  s.outer.schedule.total_steps = s.linear_schedule.total_steps =
      std::max<int64_t>(choice.solve.iterations, 1);
  s.inner.schedule.total_steps =
      std::max<int64_t>(choice.solve.iterations * std::max<int64_t>(s.inner.steps, 1), 1);
  choice.solve.settings = s;
}

void finish(AlgorithmChoice& choice) {
  AlgorithmSettings& s = choice.settings;
  const std::set<std::string> reads = options_read(find_algorithm(choice.algorithm), s);
  if (!reads.contains("inner_optimizer")) s.inner.optimizer = InnerOptions{}.optimizer;
  if (!reads.contains("inner_steps") && !(s.growth > 0)) s.inner.steps = 1;
  set_schedule_lengths(choice);
}

}  // namespace bilevel
