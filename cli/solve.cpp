// `bilevel solve`: one algorithm on one problem, with its history.

#include "bilevel/jobs/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bilevel/hypergradients/bound.h"
#include "cli/commands.h"
#include "cli/job_command.h"
#include "cli/solve_text.h"

namespace bilevel::cli {
namespace {

void print_solve(const SolveJobResult& result) {
  const SolveSummary& s = result.summary;
  const AlgorithmSettings& settings = result.settings;
  fmt::print("{} on {}: {} weights, {} hyperparameters; T {}, inner rate {:.4g}, outer {} {:.4g}\n\n",
             s.algorithm, result.problem, s.state.inner.w.numel(), s.state.x.numel(), settings.inner.steps,
             settings.inner.rate, settings.outer.optimizer, settings.outer.rate);
  fmt::print("{:>10}{:>10}{:>10}{:>14}{:>14}", "iteration", "seconds", "calls", "outer loss", "|direction|");
  const bool bounded = std::any_of(s.records.begin(), s.records.end(),
                                   [](const SolveRecord& r) { return r.bound.kind != BoundKind::none; });
  if (bounded) fmt::print("{:>12}{:>20}", "error <=", "");
  for (const auto& [name, value] : s.records.front().metrics) fmt::print("{:>{}}", name, name.size() + 3);
  fmt::print("\n");
  bool some_vacuous = false;
  for (const SolveRecord& r : s.records) {
    fmt::print("{:>10}{:>10.3f}{:>10}{:>14.6g}{:>14}", r.iteration, r.seconds, oracle_calls(r.counts),
               r.outer_loss, r.direction_norm < 0 ? "-" : fmt::format("{:.4g}", r.direction_norm));
    if (bounded) {
      const bool vacuous = r.direction_norm >= 0 && is_vacuous(r.bound, r.direction_norm);
      some_vacuous = some_vacuous || vacuous;
      fmt::print("{:>12}{:>20}", std::isfinite(r.bound.value) ? fmt::format("{:.3g}", r.bound.value) : "-",
                 r.bound.kind == BoundKind::none
                     ? ""
                     : fmt::format("{}{}", name_of(r.bound.kind), vacuous ? ", vacuous" : ""));
    }
    for (const auto& [name, value] : r.metrics) fmt::print("{:>{}.4g}", value, name.size() + 3);
    fmt::print("\n");
  }
  if (some_vacuous) {
    fmt::print(
        "vacuous: the bound is longer than the hypergradient itself and says nothing, not even its sign; "
        "solve the inner problem further (--inner-steps) or regularise it more\n");
  }
  fmt::print(
      "\nstopped: {} after {} iterations, {:.3f} s; {} inner and {} outer gradients, {} Hessian and {} cross "
      "products\n",
      name_of(s.reason), s.state.iteration, s.seconds, s.counts.inner_gradient, s.counts.outer_gradient,
      s.counts.hessian, s.counts.cross);
  print_linear_solves(s);
  print_failures(s);
}

}  // namespace

void add_solve_command(CLI::App& app, int& exit_code) {
  add_job<SolveJobOptions>(app, exit_code,
                           {"solve", "Run one algorithm on one problem",
                            "Examples:\n"
                            "  bilevel solve --problem ridge --algorithm aid-cg --iterations 200\n"
                            "  bilevel solve --problem hyper-cleaning --algorithm soba --inner-batch 20 "
                            "--outer-batch 20 --out run1\n"
                            "  bilevel solve --problem mlp --algorithm double-loop --method cg --curvature "
                            "gauss-newton --damping 0.01\n"
                            "  bilevel solve --problem ridge --method auto --accuracy 0.001\n"
                            "  bilevel solve --resume runs/solve-20260101-120000-0"},
                           run_solve, print_solve);
}

}  // namespace bilevel::cli
