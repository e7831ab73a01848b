#include "cli/algorithm_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "bilevel/algorithms/first_rate.h"
#include "bilevel/algorithms/options.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"

namespace bilevel::cli {
namespace {

constexpr const char* schedules = "constant, inverse-sqrt, cosine, linear, power or power:EXPONENT (0.5)";

// "cosine", or "power:0.4" for (step + 1)^-0.4.
Schedule parse_schedule(const char* option, const std::string& text) {
  const std::string power = "power:";
  try {
    if (!text.starts_with(power)) return {.kind = parse_schedule_kind(text)};
    const std::string exponent = text.substr(power.size());
    char* end = nullptr;
    Schedule schedule{.kind = ScheduleKind::power, .exponent = std::strtod(exponent.c_str(), &end)};
    if (exponent.empty() || *end != '\0') throw std::invalid_argument("the exponent must be a number");
    schedule.validate();
    return schedule;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{} {}: {}", option, text, error.what()));
  }
}

bool is_given(const CLI::App& command, const std::string& option) {
  const CLI::Option* found = command.get_option_no_throw(option);
  return found != nullptr && found->count() > 0;
}

}  // namespace

void add_algorithm_options(CLI::App& command, AlgorithmFlags& f, bool with_choice) {
  AlgorithmSettings& s = f.settings;
  auto* rule = command.add_option_group("algorithm");
  if (with_choice) {
    rule->add_option("--algorithm", f.algorithm, "which rule; `bilevel list` shows them")
        ->capture_default_str();
  }
  rule->add_option("--method", s.method,
                   "hypergradient of the algorithm double-loop; auto: what `bilevel diagnose` recommends")
      ->capture_default_str();
  rule->add_option("--terms", s.hypergradient.terms,
                   "K: Hessian products of series, steps of CG, Q of stocbio")
      ->capture_default_str();
  rule->add_option("--truncate", s.hypergradient.truncate, "K: the steps that krmd keeps")
      ->capture_default_str();
  rule->add_option("--linear-rate", s.linear_rate,
                   "rate of series and of single-loop rules' v; 0 = the inner rate")
      ->capture_default_str();
  rule->add_option("--linear-schedule", f.linear_schedule,
                   fmt::format("how that rate falls, for soba, saba, ma-soba and amigo: {}", schedules))
      ->capture_default_str();
  rule->add_option("--growth", s.growth, "aid-increasing: T_k = ceil(growth (k+1)^(1/4)); 0 = T")
      ->capture_default_str();
  rule->add_option("--damping", s.hypergradient.curvature.damping,
                   "rho in H + rho I of rules that solve a linear system")
      ->capture_default_str();
  rule->add_option("--curvature", f.curvature, "hessian or gauss-newton")
      ->check(CLI::IsMember({"hessian", "gauss-newton"}))
      ->capture_default_str();

  rule->add_flag("--difference-mixed", s.hypergradient.curvature.difference_mixed,
                 "central differences in place of the cross product, as DARTS and iDARTS take it");

  rule->add_flag("--error-bound", s.with_bound,
                 "double loops: bound every hypergradient's distance from the exact one (docs/bounds.md)");
  rule->add_option(
          "--on-failure", f.on_failure,
          "stop with the cause; backtrack: go back and lower the rate that is to blame; damp: go back "
          "and raise the damping")
      ->check(CLI::IsMember({"stop", "backtrack", "damp"}))
      ->capture_default_str();

  auto* own = command.add_option_group("settings of single algorithms");
  own->add_option("--strong-convexity", s.strong_convexity,
                  "stocbio: mu, by which its Hessian batches shrink; 0 = all of one size")
      ->capture_default_str();
  own->add_option("--hessian-batch", s.hessian_batch, "stocbio: B of those batches; 0 = the inner batch")
      ->capture_default_str();
  own->add_option("--momentum-decay", s.momentum_decay,
                  "fsla, single-loop-*: how much of the momentum the first step forgets")
      ->capture_default_str();
  own->add_option("--averaging", s.averaging, "ma-soba, sustain, mrbo: the newest sample's part, in (0, 1]")
      ->capture_default_str();
  own->add_option("--period", s.period, "vrbo: iterations from one large batch to the next")
      ->capture_default_str();
  own->add_option("--large-batch", s.large_batch, "vrbo: examples of a large batch; 0 = all")
      ->capture_default_str();
  own->add_option("--penalty", s.penalty, "f2sa: lambda of the first iteration")->capture_default_str();
  own->add_option("--penalty-growth", s.penalty_growth, "f2sa: lambda grows like (k+1)^growth")
      ->capture_default_str();
  own->add_option(
      "--joint-rate", s.joint_rate,
      "bome: w's rate; 0 = the outer rate. By default a tenth of the inner rate in solve and compare");
  own->add_option("--barrier", s.barrier, "bome: its eta")->capture_default_str();

  auto* inner = command.add_option_group("inner loop");
  inner->add_option("--inner-steps", s.inner.steps, "T");
  inner->add_option("--inner-rate", s.inner.rate, "by default from the problem's curvature");
  inner
      ->add_option("--inner-optimizer", s.inner.optimizer,
                   "gd, heavy-ball, nesterov or adam, of rules that run an inner loop")
      ->capture_default_str();
  inner->add_option("--inner-momentum", s.inner.momentum, "of heavy-ball and nesterov")
      ->capture_default_str();
  inner
      ->add_option("--inner-clip", s.inner.clip_norm,
                   "largest norm of an inner gradient, of rules that run an inner loop; 0 = any")
      ->capture_default_str();
  inner->add_option("--inner-schedule", f.inner_schedule, schedules)->capture_default_str();
  inner->add_option("--inner-batch", f.solve.batches.inner_batch, "examples of a batch of g; 0 = all")
      ->capture_default_str();

  auto* outer = command.add_option_group("outer steps");
  outer->add_option("--outer-rate", s.outer.rate,
                    "rate of the outer steps; the command has its own way to one where it is left out");
  outer->add_option("--outer-optimizer", s.outer.optimizer, "sgd or adam");
  outer->add_option("--outer-momentum", s.outer.momentum, "of sgd")->capture_default_str();
  outer->add_option("--outer-schedule", f.outer_schedule, schedules)->capture_default_str();
  outer->add_option("--outer-batch", f.solve.batches.outer_batch, "examples of a batch of f; 0 = all")
      ->capture_default_str();
  outer->add_option("--iterations", f.solve.iterations, "outer iterations, at most");
  outer->add_option("--budget-seconds", f.solve.seconds, "of the algorithm's own time, at most; 0 = no limit")
      ->capture_default_str();
  outer->add_option("--budget-calls", f.solve.oracle_calls, "gradients and products, at most; 0 = no limit")
      ->capture_default_str();
  outer
      ->add_option("--tolerance", f.solve.direction_tolerance,
                   "stop where the hypergradient's norm falls below this; 0 = never")
      ->capture_default_str();
  outer->add_option("--records", f.solve.records, "about how many points of the history")
      ->capture_default_str();
}

void set_fixed_ratio_defaults(const CLI::App& command, const Problem& problem, double longest,
                              AlgorithmFlags& flags) {
  AlgorithmSettings& s = flags.settings;
  if (!find_algorithm(flags.algorithm).fixed_ratios || command.count("--outer-optimizer") > 0) return;
  s.outer.optimizer = "sgd";
  if (command.count("--outer-rate") > 0) return;
  Oracle oracle(problem);
  const uint64_t seed = flags.solve.seed;
  const double rate =
      first_outer_rate(oracle, problem.initial_outer(named_seed(seed, "outer start")),
                       problem.initial_inner(named_seed(seed, "inner start")), s.inner.rate, longest);
  if (rate > 0) s.outer.rate = rate;
}

void refuse_ignored_options(const CLI::App& command, const AlgorithmFlags& f,
                            const std::vector<std::string>& algorithms) {
  // Its own choice of a method decides what is read of a curvature that was given to the diagnosis.
  const bool chosen = is_given(command, "--auto-choice");
  for (const AlgorithmOption option : bilevel::algorithm_options()) {
    const bool of_diagnosis = option == AlgorithmOption::damping || option == AlgorithmOption::curvature;
    const std::string name = fmt::format("--{}", name_of(option));
    if (!is_given(command, name) || (chosen && of_diagnosis)) continue;
    const CLI::Option& given = *command.get_option(name);
    const bool is_flag = given.get_items_expected_max() == 0;
    require_read(algorithms, f.settings, option, is_flag ? "" : given.results().front());
  }
  if (f.on_failure != "damp") return;
  for (const std::string& name : algorithms) {
    if (options_read(find_algorithm(name), f.settings).contains(AlgorithmOption::damping)) return;
  }
  throw std::invalid_argument(fmt::format(
      "--on-failure damp: there is nothing to damp in {}; choose backtrack, which lowers the rate that is to "
      "blame, or stop",
      fmt::join(algorithms, ", ")));
}

void finish_algorithm_options(const CLI::App& command, AlgorithmFlags& f) {
  AlgorithmSettings& s = f.settings;
  s.hypergradient.curvature.kind = f.curvature;
  const bool is_one = command.get_option_no_throw("--algorithm") != nullptr;  // compare takes several
  if (is_one) {
    refuse_ignored_options(command, f, {f.algorithm});
    const AlgorithmOptionSet reads = options_read(find_algorithm(f.algorithm), s);
    if (!reads.contains(AlgorithmOption::inner_optimizer)) s.inner.optimizer = InnerOptions{}.optimizer;
    if (!reads.contains(AlgorithmOption::inner_steps) && !(s.growth > 0)) s.inner.steps = 1;
  }
  s.inner.schedule = parse_schedule("--inner-schedule", f.inner_schedule);
  s.linear_schedule = parse_schedule("--linear-schedule", f.linear_schedule);
  s.outer.schedule = parse_schedule("--outer-schedule", f.outer_schedule);
  // A schedule with an end ends with the run; the inner steps of a warm-started loop are counted on.
  s.outer.schedule.total_steps = s.linear_schedule.total_steps = std::max<int64_t>(f.solve.iterations, 1);
  s.inner.schedule.total_steps =
      std::max<int64_t>(f.solve.iterations * std::max<int64_t>(s.inner.steps, 1), 1);
  f.solve.on_failure = parse_on_failure(f.on_failure);
  f.solve.settings = s;
}

}  // namespace bilevel::cli
