#include "cli/algorithm_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/algorithms/first_rate.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"

namespace bilevel::cli {

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
  rule->add_option("--growth", s.growth, "aid-increasing: T_k = ceil(growth (k+1)^(1/4)); 0 = T")
      ->capture_default_str();
  rule->add_option("--damping", s.hypergradient.curvature.damping,
                   "rho in H + rho I of implicit hypergradients")
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
  inner->add_option("--inner-optimizer", s.inner.optimizer, "gd, heavy-ball, nesterov or adam (double loops)")
      ->capture_default_str();
  inner->add_option("--inner-momentum", s.inner.momentum, "of heavy-ball and nesterov")
      ->capture_default_str();
  inner
      ->add_option("--inner-clip", s.inner.clip_norm,
                   "largest norm of an inner gradient (double loops); 0 = any")
      ->capture_default_str();
  inner->add_option("--inner-schedule", f.inner_schedule, "constant, inverse-sqrt, cosine, linear or power")
      ->capture_default_str();
  inner->add_option("--inner-batch", f.solve.batches.inner_batch, "examples of a batch of g; 0 = all")
      ->capture_default_str();

  auto* outer = command.add_option_group("outer steps");
  outer->add_option("--outer-rate", s.outer.rate,
                    "rate of the outer steps; the command has its own way to one where it is left out");
  outer->add_option("--outer-optimizer", s.outer.optimizer, "sgd or adam");
  outer->add_option("--outer-momentum", s.outer.momentum, "of sgd")->capture_default_str();
  outer->add_option("--outer-schedule", f.outer_schedule, "constant, inverse-sqrt, cosine, linear or power")
      ->capture_default_str();
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

void refuse_ignored_method(const CLI::App& command, const AlgorithmFlags& f,
                           const std::vector<std::string>& algorithms) {
  if (command.count("--method") == 0) return;
  if (std::find(algorithms.begin(), algorithms.end(), "double-loop") != algorithms.end()) return;
  throw std::invalid_argument(
      fmt::format("--method {} is of the algorithm double-loop, not of {}: choose double-loop too, or leave "
                  "--method out",
                  f.settings.method, fmt::join(algorithms, ", ")));
}

void finish_algorithm_options(const CLI::App& command, AlgorithmFlags& f) {
  // compare takes several.
  if (command.get_option_no_throw("--algorithm") != nullptr) refuse_ignored_method(command, f, {f.algorithm});
  AlgorithmSettings& s = f.settings;
  s.hypergradient.curvature.kind = f.curvature;
  s.inner.schedule.kind = parse_schedule_kind(f.inner_schedule);
  s.outer.schedule.kind = parse_schedule_kind(f.outer_schedule);
  // A schedule with an end ends with the run; the inner steps of a warm-started loop are counted on.
  s.outer.schedule.total_steps = std::max<int64_t>(f.solve.iterations, 1);
  s.inner.schedule.total_steps =
      std::max<int64_t>(f.solve.iterations * std::max<int64_t>(s.inner.steps, 1), 1);
  f.solve.on_failure = parse_on_failure(f.on_failure);
  f.solve.settings = s;
}

}  // namespace bilevel::cli
