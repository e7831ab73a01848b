// `bilevel solve`: one algorithm on one problem, with its history.

#include "bilevel/algorithms/solve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "bilevel/data/npy.h"
#include "bilevel/data/write_file.h"
#include "cli/algorithm_options.h"
#include "cli/auto_method.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json.h"
#include "cli/problem_options.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  ProblemFlags problem;
  AlgorithmFlags algorithm;
  AutoFlags automatic;
  std::string out;
};

void print_text(const Options& o, const NamedProblem& problem, const SolveSummary& s) {
  const AlgorithmSettings& settings = o.algorithm.settings;
  fmt::print("{} on {}: {} weights, {} hyperparameters; T {}, inner rate {:.4g}, outer {} {:.4g}\n\n",
             s.algorithm, problem.name, s.state.inner.w.numel(), s.state.x.numel(), settings.inner.steps,
             settings.inner.rate, settings.outer.optimizer, settings.outer.rate);
  fmt::print("{:>10}{:>10}{:>10}{:>14}{:>14}", "iteration", "seconds", "calls", "outer loss", "|direction|");
  for (const auto& [name, value] : s.records.front().metrics) fmt::print("{:>{}}", name, name.size() + 3);
  fmt::print("\n");
  for (const SolveRecord& r : s.records) {
    fmt::print("{:>10}{:>10.3f}{:>10}{:>14.6g}{:>14}", r.iteration, r.seconds, oracle_calls(r.counts),
               r.outer_loss, r.direction_norm < 0 ? "-" : fmt::format("{:.4g}", r.direction_norm));
    for (const auto& [name, value] : r.metrics) fmt::print("{:>{}.4g}", value, name.size() + 3);
    fmt::print("\n");
  }
  fmt::print(
      "\nstopped: {} after {} iterations, {:.3f} s; {} inner and {} outer gradients, {} Hessian and {} cross "
      "products\n",
      name_of(s.reason), s.state.iteration, s.seconds, s.counts.inner_gradient, s.counts.outer_gradient,
      s.counts.hessian, s.counts.cross);
}

void save(const SolveSummary& s, const Json& json, const std::string& folder) {
  write_npy(folder + "/x.npy", s.state.x);
  write_npy(folder + "/w.npy", s.state.inner.w);
  write_file(folder + "/summary.json", json.dump(2) + "\n");
}

int run(CLI::App& command, Options& o) {
  o.problem.data.tensors = apply_common_options(o.common);
  const NamedProblem problem = make_problem(command, o.problem);
  if (wants_auto(o.algorithm)) {
    o.algorithm.solve.seed = o.problem.data.seed;
    Progress progress(o.common);
    choose_method(command, diagnosed(problem), o.algorithm, o.automatic, o.common, progress,
                  o.algorithm.settings.inner, command.count("--inner-rate") > 0);
  }
  set_problem_defaults(command, problem, find_algorithm(o.algorithm.algorithm).family, o.algorithm);
  o.algorithm.solve.seed = o.problem.data.seed;
  const auto algorithm = make_algorithm(o.algorithm.algorithm, o.algorithm.settings);
  if (!o.out.empty()) make_folder(o.out, "--out");
  SolveSummary summary;
  {
    Progress progress(o.common);
    const SolveOptions& s = o.algorithm.solve;
    summary =
        solve(*problem.problem, *algorithm, s, {.record = [&](const SolveRecord& r, const AlgorithmState&) {
          progress(fmt::format("{}: iteration {} of {}, loss {:.5g}, {:.1f} s", algorithm->name(),
                               r.iteration, s.iterations, r.outer_loss, r.seconds));
          return true;
        }});
  }
  Json json = {{"problem", problem.name}};
  json.update(solve_json(summary));
  add_choice(o.automatic, json);
  json["inner_rate"] = o.algorithm.settings.inner.rate;
  json["outer_rate"] = o.algorithm.settings.outer.rate;
  json["outer_loss"] = number(summary.records.back().outer_loss);
  if (o.common.json) {
    fmt::print("{}\n", json.dump());
  } else {
    print_text(o, problem, summary);
  }
  if (!o.out.empty()) {
    save(summary, json, o.out);  // last: a full disk must not cost the answer
    if (!o.common.json) fmt::print("x.npy, w.npy and summary.json are in {}\n", o.out);
  }
  if (summary.reason != StopReason::not_finite) return success;
  fmt::print(stderr, "bilevel: {}\n", summary.message);
  return not_finite;
}

}  // namespace

void add_solve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("solve", "Run one algorithm on one problem");
  command->footer(
      "Examples:\n"
      "  bilevel solve --problem ridge --algorithm aid-cg --iterations 200\n"
      "  bilevel solve --problem hyper-cleaning --algorithm soba --inner-batch 20 --outer-batch 20 --out "
      "run1\n"
      "  bilevel solve --problem mlp --algorithm double-loop --method cg --curvature gauss-newton --damping "
      "0.01\n"
      "  bilevel solve --problem ridge --method auto --accuracy 0.001");
  const auto options = std::make_shared<Options>();
  add_problem_options(*command, options->problem);
  add_algorithm_options(*command, options->algorithm);
  add_auto_options(*command, options->automatic);
  options->algorithm.solve.iterations = 200;
  options->algorithm.solve.records = 20;
  command->add_option("--out", options->out, "folder for x.npy, w.npy and summary.json");
  add_common_options(*command, options->common);
  command->callback([command, options, &exit_code] { exit_code = run(*command, *options); });
}

}  // namespace bilevel::cli
