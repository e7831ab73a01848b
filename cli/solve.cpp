// `bilevel solve`: one algorithm on one problem, with its history.

#include "bilevel/algorithms/solve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "bilevel/check/diagnose.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/sha256.h"
#include "bilevel/hypergradients/bound.h"
#include "cli/algorithm_options.h"
#include "cli/auto_method.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/solve_run.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  ProblemFlags problem;
  AlgorithmFlags algorithm;
  AutoFlags automatic;
  RunFlags run;
};

void print_text(const Options& o, const NamedProblem& problem, const SolveSummary& s) {
  const AlgorithmSettings& settings = o.algorithm.settings;
  fmt::print("{} on {}: {} weights, {} hyperparameters; T {}, inner rate {:.4g}, outer {} {:.4g}\n\n",
             s.algorithm, problem.name, s.state.inner.w.numel(), s.state.x.numel(), settings.inner.steps,
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
        "solve the "
        "inner problem further (--inner-steps) or regularise it more\n");
  }
  fmt::print(
      "\nstopped: {} after {} iterations, {:.3f} s; {} inner and {} outer gradients, {} Hessian and {} cross "
      "products\n",
      name_of(s.reason), s.state.iteration, s.seconds, s.counts.inner_gradient, s.counts.outer_gradient,
      s.counts.hessian, s.counts.cross);
  print_linear_solves(s);
  print_failures(s);
}

// Of what the problem was made of; the seed tells the rest.
nlohmann::json digests_of(const NamedProblem& problem, const ProblemOptions& data) {
  nlohmann::json digests = nlohmann::json::array();
  if (!problem.digest.empty()) digests.push_back(problem.digest);
  for (const std::string& path :
       {data.train_features, data.train_labels, data.valid_features, data.valid_labels}) {
    if (!path.empty()) digests.push_back(sha256_of_file(path));
  }
  return digests;
}

int run(CLI::App& command, Options& o) {
  take_options(command, o.run, o.common);
  if (repeats_finished_run(o.run, o.common)) return success;
  refuse_ignored_accuracy(command, o.automatic, wants_auto(o.algorithm));
  o.problem.data.tensors = apply_common_options(o.common);
  const NamedProblem problem = make_problem(command, o.problem);
  if (problem.name == nas::synthetic_supernet_row().name && command.count("--weight-decay") == 0) {
    o.problem.data.weight_decay = o.problem.supernet.weight_decay;  // for config.json
  }
  if (wants_auto(o.algorithm)) {
    o.algorithm.solve.seed = o.problem.data.seed;
    Progress progress(o.common);
    choose_method(command, diagnosed(problem), o.algorithm, o.automatic, progress, o.algorithm.settings.inner,
                  command.count("--inner-rate") > 0);
  }
  o.algorithm.solve.seed = o.problem.data.seed;
  set_problem_defaults(command, problem, o.algorithm);
  o.algorithm.solve.validate();
  const auto algorithm = make_algorithm(o.algorithm.algorithm, o.algorithm.settings);
  RunFolder folder = open_run(command, o.run, o.problem.data.seed);
  int exit_code = success;
  work_in(folder, [&] {
    const auto checkpoint = load_run(folder, o.run, o.common);
    const SolveSummary summary = solve_in_folder({.problem = *problem.problem,
                                                  .algorithm = *algorithm,
                                                  .options = o.algorithm.solve,
                                                  .run = o.run,
                                                  .common = o.common,
                                                  .data = digests_of(problem, o.problem.data)},
                                                 folder, checkpoint);
    Json json = {{"problem", problem.name}, {"folder", folder.path()}};
    json.update(solve_json(summary));
    add_choice(o.automatic, json);
    measure_choice_at_end(o.automatic, *problem.problem, o.algorithm.settings, summary, o.common, json);
    json["inner_rate"] = o.algorithm.settings.inner.rate;
    json["outer_rate"] = o.algorithm.settings.outer.rate;
    json["outer_loss"] = number(summary.records.back().outer_loss);
    if (o.common.json) {
      fmt::print("{}\n", json.dump());
    } else {
      print_text(o, problem, summary);
    }
    // Last: a full disk must not cost the answer.
    write_npy(folder.file("x.npy"), summary.state.x);
    write_npy(folder.file("w.npy"), summary.inner_solution);
    exit_code = end_solve_run(command, folder, summary, json);
  });
  if (!o.common.json) fmt::print("the run is in {}\n", folder.path());
  return exit_code;
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
      "  bilevel solve --problem ridge --method auto --accuracy 0.001\n"
      "  bilevel solve --resume runs/solve-20260101-120000-0");
  const auto options = std::make_shared<Options>();
  add_problem_options(*command, options->problem);
  options->algorithm.solve.iterations = 200;  // before the options, whose help shows them
  options->algorithm.solve.records = 20;
  add_algorithm_options(*command, options->algorithm);
  add_auto_options(*command, options->automatic);
  add_run_options(*command, options->run);
  add_common_options(*command, options->common);
  command->callback([command, options, &exit_code] { exit_code = run(*command, *options); });
}

}  // namespace bilevel::cli
