#include "bilevel/jobs/algorithm_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "bilevel/algorithms/first_rate.h"
#include "bilevel/algorithms/options.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"
#include "bilevel/fields/option_text.h"

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

std::string word_of(OnFailure choice) { return std::string(name_of(choice)); }
void read_word(const std::string& word, OnFailure& choice) { choice = parse_on_failure(word); }

namespace {

Fields<AlgorithmChoice> algorithm_fields(bool with_choice) {
  using O = AlgorithmChoice;
  constexpr const char* schedules = "constant, inverse-sqrt, cosine, linear, power or power:EXPONENT (0.5)";
  Fields<O> f;
  f.heading("algorithm");
  if (with_choice) {
    f.add(
         "algorithm", [](O & o) -> auto& { return o.algorithm; }, "which rule; `bilevel list` shows them")
        .first();
  }
  f.add(
       "method", [](O & o) -> auto& { return o.settings.method; },
       "hypergradient of the algorithm double-loop; auto: what `bilevel diagnose` recommends")
      .first();
  f.add(
       "terms", [](O & o) -> auto& { return o.settings.hypergradient.terms; },
       "K: Hessian products of series, steps of CG, Q of stocbio")
      .in(at_least(0, bounds::within_step))
      .first();
  f.add(
       "truncate", [](O & o) -> auto& { return o.settings.hypergradient.truncate; },
       "K: the steps that krmd keeps")
      .in(at_least(0, bounds::within_step));
  f.add(
       "linear_rate", [](O & o) -> auto& { return o.settings.linear_rate; },
       "rate of series and of single-loop rules' v; 0 = the inner rate")
      .in(at_least(0));
  f.add(
      "linear_schedule", [](O & o) -> auto& { return o.settings.linear_schedule; },
      fmt::format("how that rate falls, for soba, saba, ma-soba and amigo: {}", schedules));
  f.add(
       "growth", [](O & o) -> auto& { return o.settings.growth; },
       "aid-increasing: T_k = ceil(growth (k+1)^(1/4)); 0 = T")
      .in(at_least(0, bounds::within_step));
  f.add(
       "damping", [](O & o) -> auto& { return o.settings.hypergradient.curvature.damping; },
       "rho in H + rho I of rules that solve a linear system")
      .in(at_least(0));
  f.add(
       "curvature", [](O & o) -> auto& { return o.settings.hypergradient.curvature.kind; },
       "hessian or gauss-newton")
      .one_of({"hessian", "gauss-newton"});
  f.add(
      "difference_cross", [](O & o) -> auto& { return o.settings.hypergradient.curvature.difference_cross; },
      "central differences in place of the cross product, as DARTS and iDARTS take it");
  f.add(
      "error_bound", [](O & o) -> auto& { return o.settings.with_bound; },
      "double loops: bound every hypergradient's distance from the exact one (docs/bounds.md)");
  f.add(
       "on_failure", [](O & o) -> auto& { return o.solve.on_failure; },
       "stop with the cause; backtrack: go back and lower the rate that is to blame; damp: go back and "
       "raise the damping")
      .one_of({"stop", "backtrack", "damp"});

  f.heading("settings of single algorithms");
  f.add(
       "strong_convexity", [](O & o) -> auto& { return o.settings.strong_convexity; },
       "stocbio: mu, by which its Hessian batches shrink; 0 = all of one size")
      .in(at_least(0));
  f.add(
       "hessian_batch", [](O & o) -> auto& { return o.settings.hessian_batch; },
       "stocbio: B of those batches; 0 = the inner batch")
      .in(at_least(0, bounds::examples));
  f.add(
       "momentum_decay", [](O & o) -> auto& { return o.settings.momentum_decay; },
       "fsla, single-loop-*: how much of the momentum the first step forgets")
      .in(above(0, 1));
  f.add(
       "averaging", [](O & o) -> auto& { return o.settings.averaging; },
       "ma-soba, sustain, mrbo: the newest sample's part, in (0, 1]")
      .in(above(0, 1));
  f.add(
       "period", [](O & o) -> auto& { return o.settings.period; },
       "vrbo: iterations from one large batch to the next")
      .in(at_least(1, bounds::endless));
  f.add(
       "large_batch", [](O & o) -> auto& { return o.settings.large_batch; },
       "vrbo: examples of a large batch; 0 = all")
      .in(at_least(0, bounds::examples));
  f.add(
       "penalty", [](O & o) -> auto& { return o.settings.penalty; }, "f2sa: lambda of the first iteration")
      .in(above(0));
  f.add(
       "penalty_growth", [](O & o) -> auto& { return o.settings.penalty_growth; },
       "f2sa: lambda grows like (k+1)^growth")
      .in(at_least(0));
  f.add(
       "joint_rate", [](O & o) -> auto& { return o.settings.joint_rate; },
       "bome: w's rate; 0 = the outer rate. By default a tenth of the inner rate in solve and compare")
      .in(at_least(0))
      .by_rule();
  f.add(
       "barrier", [](O & o) -> auto& { return o.settings.barrier; }, "bome: its eta")
      .in(above(0));

  f.heading("inner loop");
  f.add(
       "inner_steps", [](O & o) -> auto& { return o.settings.inner.steps; }, "T")
      .in(at_least(0, bounds::within_step))
      .by_rule()
      .first();
  f.add(
       "inner_rate", [](O & o) -> auto& { return o.settings.inner.rate; },
       "by default from the problem's curvature")
      .in(above(0))
      .by_rule()
      .first();
  f.add(
      "inner_optimizer", [](O & o) -> auto& { return o.settings.inner.optimizer; },
      "gd, heavy-ball, nesterov or adam, of rules that run an inner loop");
  f.add(
       "inner_momentum", [](O & o) -> auto& { return o.settings.inner.momentum; },
       "of heavy-ball and nesterov")
      .in(from_0_below_1());
  f.add(
       "inner_clip", [](O & o) -> auto& { return o.settings.inner.clip_norm; },
       "largest norm of an inner gradient, of rules that run an inner loop; 0 = any")
      .in(at_least(0));
  f.add(
      "inner_schedule", [](O & o) -> auto& { return o.settings.inner.schedule; }, schedules);
  f.add(
       "inner_batch", [](O & o) -> auto& { return o.solve.batches.inner_batch; },
       "examples of a batch of g; 0 = all")
      .in(at_least(0, bounds::examples));

  f.heading("outer steps");
  f.add(
       "outer_rate", [](O & o) -> auto& { return o.settings.outer.rate; },
       "rate of the outer steps; by default the command chooses one")
      .in(above(0))
      .by_rule()
      .first();
  f.add(
       "outer_optimizer", [](O & o) -> auto& { return o.settings.outer.optimizer; }, "sgd or adam")
      .by_rule();
  f.add(
       "outer_momentum", [](O & o) -> auto& { return o.settings.outer.momentum; }, "of sgd")
      .in(from_0_below_1());
  f.add(
      "outer_schedule", [](O & o) -> auto& { return o.settings.outer.schedule; }, schedules);
  f.add(
       "outer_batch", [](O & o) -> auto& { return o.solve.batches.outer_batch; },
       "examples of a batch of f; 0 = all")
      .in(at_least(0, bounds::examples));
  f.add(
       "iterations", [](O & o) -> auto& { return o.solve.iterations; }, "outer iterations, at most")
      .in(at_least(0, bounds::endless))
      .first();
  f.add(
       "budget_seconds", [](O & o) -> auto& { return o.solve.seconds; },
       "of the algorithm's own time, at most; 0 = no limit")
      .in(at_least(0));
  f.add(
       "budget_calls", [](O & o) -> auto& { return o.solve.oracle_calls; },
       "gradients and products, at most; 0 = no limit")
      .in(at_least(0, bounds::endless));
  f.add(
       "tolerance", [](O & o) -> auto& { return o.solve.direction_tolerance; },
       "stop where the hypergradient's norm falls below this; 0 = never")
      .in(at_least(0));
  f.add(
       "records", [](O & o) -> auto& { return o.solve.records; }, "about how many points of the history")
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
  for (const AlgorithmOption option : algorithm_options()) {
    const bool of_diagnosis = option == AlgorithmOption::damping || option == AlgorithmOption::curvature;
    const Field& field = options.at(field_of(option));
    if (!options.is_given(field) || (chosen && of_diagnosis)) continue;
    require_read(algorithms, choice.settings, option,
                 field.type == FieldType::flag ? "" : options.words(field).front());
  }
  if (choice.solve.on_failure != OnFailure::damp) return;
  for (const std::string& name : algorithms) {
    if (options_read(find_algorithm(name), choice.settings).contains(AlgorithmOption::damping)) return;
  }
  throw OptionError(fmt::format(
      "{}: there is nothing to damp in {}; choose backtrack, which lowers the rate that is to blame, or stop",
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
  const AlgorithmOptionSet reads = options_read(find_algorithm(choice.algorithm), s);
  if (!reads.contains(AlgorithmOption::inner_optimizer)) s.inner.optimizer = InnerOptions{}.optimizer;
  if (!reads.contains(AlgorithmOption::inner_steps) && !(s.growth > 0)) s.inner.steps = 1;
  set_schedule_lengths(choice);
}

}  // namespace bilevel
