// `bilevel compare`: several algorithms on one problem with the same budget, by oracle calls and by seconds.

#include "bilevel/check/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/data/write_file.h"
#include "cli/algorithm_options.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/json.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/seed_list.h"

namespace bilevel::cli {
namespace {

constexpr int64_t curve_points = 20;

struct Options {
  CommonOptions common;
  ProblemFlags problem;
  AlgorithmFlags algorithm;
  CompareOptions compare;
  std::string seeds = "0-2";
  std::string out;
  bool no_value = false;
};

// ---- options ----

void prepare(const CLI::App& command, const NamedProblem& problem, Options& o) {
  CompareOptions& c = o.compare;
  refuse_ignored_options(command, o.algorithm, c.algorithms);
  set_problem_defaults(command, problem, o.algorithm);
  c.settings = o.algorithm.settings;
  c.cold_steps = command.count("--inner-steps") > 0 ? c.settings.inner.steps : problem.inner_steps;
  c.solve = o.algorithm.solve;
  c.seeds = parse_seeds(o.seeds);
  c.search.on = command.count("--outer-rate") == 0;
  if (c.search.on && command.count("--outer-optimizer") == 0)
    c.settings.outer.optimizer = "sgd";  // as in the papers
  c.measure_value = problem.convex && !o.no_value;
  if (o.common.dtype == "float") c.value.relative_tolerance = 1e-5;  // what single precision reaches
  // The papers' batches of 50, but not all of a small set: a rule for minibatches would have none.
  const Problem& p = *problem.problem;
  c.stochastic_batches = o.algorithm.solve.batches;
  if (command.count("--inner-batch") == 0) {
    c.stochastic_batches.inner_batch = std::clamp<int64_t>(p.inner_samples() / 4, 1, 50);
  }
  if (command.count("--outer-batch") == 0) {
    c.stochastic_batches.outer_batch = std::clamp<int64_t>(p.outer_samples() / 4, 1, 50);
  }
  if (c.solve.seconds == 0 && c.solve.oracle_calls == 0 && command.count("--iterations") == 0)
    c.solve.seconds = 5;
  if (command.count("--iterations") == 0) c.solve.iterations = 100'000'000;
}

// ---- what came out ----

// Rules that take one step of w an iteration have no T.
std::optional<int64_t> inner_steps_of(const ComparedAlgorithm& a, const AlgorithmSettings& settings) {
  const AlgorithmOptionSet reads = options_read(find_algorithm(a.name), settings);
  return reads.contains(AlgorithmOption::inner_steps) ? std::optional(a.inner_steps) : std::nullopt;
}

std::vector<double> final_values(const ComparedAlgorithm& a) {
  std::vector<double> values;
  for (const ComparedRun& run : a.runs) values.push_back(run.records.back().value);
  return values;
}

// nullopt where the yardstick has no gradient.
std::optional<MeanAndSpread> final_gradient(const ComparedAlgorithm& a) {
  std::vector<double> norms;
  for (const ComparedRun& run : a.runs) {
    if (const auto norm = run.records.back().gradient_norm) norms.push_back(*norm);
  }
  if (norms.size() < a.runs.size()) return std::nullopt;
  return mean_and_spread(norms);
}

Json spread_json(const MeanAndSpread& m) { return {{"mean", number(m.mean)}, {"spread", number(m.spread)}}; }

bool decreased(const ComparedRun& run) { return run.records.back().value < run.records.front().value; }

Json curve_json(const ComparedAlgorithm& a, CurveAxis axis) {
  Json points = Json::array();
  for (const CurvePoint& p : curve(a, axis, curve_points)) {
    Json point = {{axis == CurveAxis::seconds ? "seconds" : "oracle_calls", p.used},
                  {"loss", spread_json(p.value)}};
    if (p.gradient_norm) point["gradient_norm"] = spread_json(*p.gradient_norm);
    points.push_back(std::move(point));
  }
  return points;
}

Json run_json(const ComparedRun& run) {
  Json out = {{"seed", run.seed}, {"stopped", name_of(run.summary.reason)}};
  if (!run.summary.message.empty()) out["message"] = run.summary.message;
  out["iterations"] = run.summary.state.iteration;
  out["seconds"] = run.summary.seconds;
  out["counts"] = counts_json(run.summary.counts);
  out["linear_solves"] = run.summary.statuses;
  out["loss_first"] = number(run.records.front().value);
  out["loss_last"] = number(run.records.back().value);
  if (const auto norm = run.records.back().gradient_norm) out["gradient_norm_last"] = number(*norm);
  out["x_norm"] = number(run.summary.state.x.norm().item<double>());
  out["decreased"] = decreased(run);
  return out;
}

std::string_view family_name(Family family) {
  return family == Family::cold ? "cold" : family == Family::warm ? "warm" : "stochastic";
}

std::string yardstick_text(const CompareOptions& c, Yardstick yardstick) {
  if (yardstick == Yardstick::own_loss) return "f(x, w) at the algorithm's own w";
  return fmt::format("f(x, w*(x)), the inner problem solved to {:g} of its first gradient",
                     c.value.relative_tolerance);
}

Json report_json(const Options& o, const NamedProblem& problem, const Comparison& comparison) {
  const CompareOptions& c = o.compare;
  Json out = {{"problem", problem.name}};
  out["yardstick"] = name_of(comparison.yardstick);
  out["yardstick_is"] = yardstick_text(c, comparison.yardstick);
  if (!comparison.why.empty()) out["yardstick_why"] = comparison.why;
  out["budget"] = {{"seconds", c.solve.seconds},
                   {"oracle_calls", c.solve.oracle_calls},
                   {"iterations", c.solve.iterations},
                   {"search_seconds", !c.search.on           ? 0
                                      : c.search.seconds > 0 ? c.search.seconds
                                                             : c.solve.seconds}};
  out["batches"] = {{"inner", c.stochastic_batches.inner_batch}, {"outer", c.stochastic_batches.outer_batch}};
  out["algorithms"] = Json::array();
  for (const ComparedAlgorithm& a : comparison.algorithms) {
    const auto steps = inner_steps_of(a, c.settings);
    Json row = {{"name", a.name},
                {"family", family_name(a.family)},
                {"inner_steps", steps ? Json(*steps) : Json()},
                {"inner_rate", a.inner_rate},
                {"outer_rate", a.outer_rate},
                {"candidates", a.candidates},
                {"failed_candidates", a.failed_candidates},
                {"dropped_candidates", a.dropped_candidates}};
    if (a.schedule_iterations > 0) row["schedule_iterations"] = a.schedule_iterations;
    row["yardstick"] = name_of(comparison.yardstick);
    row["loss"] = spread_json(mean_and_spread(final_values(a)));
    if (const auto gradient = final_gradient(a)) row["gradient_norm"] = spread_json(*gradient);
    row["runs"] = Json::array();
    for (const ComparedRun& run : a.runs) row["runs"].push_back(run_json(run));
    row["by_seconds"] = curve_json(a, CurveAxis::seconds);
    row["by_calls"] = curve_json(a, CurveAxis::oracle_calls);
    out["algorithms"].push_back(std::move(row));
  }
  return out;
}

std::string spread_text(const MeanAndSpread& m) { return fmt::format("{:.5g} +- {:.1g}", m.mean, m.spread); }

void print_text(const Options& o, const NamedProblem& problem, const Comparison& comparison) {
  const CompareOptions& c = o.compare;
  const bool by_value = comparison.yardstick == Yardstick::value_function;
  std::vector<std::string> budget;
  if (c.solve.seconds > 0) budget.push_back(fmt::format("{} s", c.solve.seconds));
  if (c.solve.oracle_calls > 0) budget.push_back(fmt::format("{} oracle calls", c.solve.oracle_calls));
  if (budget.empty()) budget.push_back(fmt::format("{} iterations", c.solve.iterations));
  fmt::print("{}, seeds {}, {} a run{}\n", problem.name, seeds_text(c.seeds), fmt::join(budget, " or "),
             c.search.on ? ", as much again for the search of its rates" : "");
  fmt::print("yardstick of every row: {}\n", yardstick_text(c, comparison.yardstick));
  if (!comparison.why.empty()) {
    fmt::print("not {}: {}\n", name_of(Yardstick::value_function), comparison.why);
  }
  fmt::print("\n{:<22}{:>5}{:>11}{:>11}{:>12}{:>12}{:>22}{:>22}\n", "algorithm", "T", "inner rate",
             "outer rate", "iterations", "calls", name_of(comparison.yardstick),
             by_value ? "|its gradient|" : "");
  for (const ComparedAlgorithm& a : comparison.algorithms) {
    std::vector<double> iterations, calls;
    bool failed = false;
    for (const ComparedRun& run : a.runs) {
      iterations.push_back(static_cast<double>(run.summary.state.iteration));
      calls.push_back(static_cast<double>(oracle_calls(run.summary.counts)));
      failed = failed || ended_badly(run.summary.reason);
    }
    const auto gradient = final_gradient(a);
    const auto steps = inner_steps_of(a, c.settings);
    fmt::print("{:<22}{:>5}{:>11.3g}{:>11.3g}{:>12.0f}{:>12.0f}{:>22}{:>22}{}\n", a.name,
               steps ? fmt::to_string(*steps) : "-", a.inner_rate, a.outer_rate,
               mean_and_spread(iterations).mean, mean_and_spread(calls).mean,
               spread_text(mean_and_spread(final_values(a))), gradient ? spread_text(*gradient) : "",
               failed ? "  diverged: where it last was well" : "");
  }
}

void save(const Comparison& comparison, const std::string& folder) {
  const std::string_view yardstick = name_of(comparison.yardstick);
  write_file(folder + "/runs.csv", [&](std::ostream& out) {
    out << "algorithm,seed,iteration,seconds,oracle_calls,inner_gradients,outer_gradients,hessian_products,"
           "cross_products,samples,yardstick,loss,gradient_norm,own_loss,direction_norm\n";
    for (const ComparedAlgorithm& a : comparison.algorithms) {
      for (const ComparedRun& run : a.runs) {
        for (const ComparedRecord& r : run.records) {
          const OracleCounts& c = r.record.counts;
          out << fmt::format("{},{},{},{},{},{},{},{},{},{},\"{}\",{},{},{},{}\n", a.name, run.seed,
                             r.record.iteration, r.record.seconds, oracle_calls(c), c.inner_gradient,
                             c.outer_gradient, c.hessian, c.cross, c.samples, yardstick, r.value,
                             r.gradient_norm ? fmt::to_string(*r.gradient_norm) : "", r.record.outer_loss,
                             r.record.direction_norm < 0 ? "" : fmt::to_string(r.record.direction_norm));
        }
      }
    }
  });
  for (const CurveAxis axis : {CurveAxis::seconds, CurveAxis::oracle_calls}) {
    const std::string name = axis == CurveAxis::seconds ? "seconds" : "oracle_calls";
    write_file(folder + "/by_" + name + ".csv", [&](std::ostream& out) {
      out << "algorithm," << name
          << ",yardstick,loss_mean,loss_spread,gradient_norm_mean,gradient_norm_spread\n";
      for (const ComparedAlgorithm& a : comparison.algorithms) {
        for (const CurvePoint& p : curve(a, axis, curve_points)) {
          out << fmt::format("{},{},\"{}\",{},{},{},{}\n", a.name, p.used, yardstick, p.value.mean,
                             p.value.spread, p.gradient_norm ? fmt::to_string(p.gradient_norm->mean) : "",
                             p.gradient_norm ? fmt::to_string(p.gradient_norm->spread) : "");
        }
      }
    });
  }
}

void add_options(CLI::App& command, Options& o) {
  add_problem_options(command, o.problem);
  command
      .add_option("--algorithms", o.compare.algorithms,
                  "which, separated by commas; `bilevel list` shows them")
      ->delimiter(',')
      ->required();
  command
      .add_option("--seeds", o.seeds,
                  "a list, of starting points and batches: 0-2 (three seeds), 0,3,7 or 2-2 (one seed)")
      ->capture_default_str();
  o.algorithm.solve.records = 20;  // before the options, whose help shows it
  add_algorithm_options(command, o.algorithm, false);
  auto* search = command.add_option_group("search for rates (off where --outer-rate is given)");
  search->add_option("--search-seconds", o.compare.search.seconds,
                     "for one algorithm, all candidates together; 0 = as long as one run");
  search->add_option("--outer-rates", o.compare.search.outer_rates, "candidates, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  search
      ->add_option("--inner-factors", o.compare.search.inner_factors, "candidates: factors of the inner rate")
      ->delimiter(',')
      ->capture_default_str();
  command.add_flag("--own-loss", o.no_value,
                   "compare f(x, w) at the algorithm's own w, not at the solved one");
  command.add_option("--out", o.out,
                     "folder for runs.csv, by_seconds.csv, by_oracle_calls.csv and summary.json; "
                     "runs/compare-DATE-SEED by default");
  add_common_options(command, o.common);
}

int run(CLI::App& command, Options& o) {
  o.problem.data.tensors = apply_common_options(o.common);
  const NamedProblem problem = make_problem(command, o.problem);
  prepare(command, problem, o);
  o.compare.validate();
  RunFlags flags;
  flags.out = o.out;
  RunFolder folder = open_run(command, flags, o.problem.data.seed);
  work_in(folder, [&] {
    Comparison comparison;
    {
      Progress progress(o.common);
      comparison = compare_algorithms(*problem.problem, o.compare,
                                      [&](const std::string& what) { progress("compare: " + what); });
    }
    const Json json = report_json(o, problem, comparison);
    if (o.common.json) {
      fmt::print("{}\n", json.dump());
    } else {
      print_text(o, problem, comparison);
    }
    save(comparison, folder.path());  // last: a full disk must not cost the answer
    folder.end(RunStatus::finished, "", json);
    if (!o.common.json) {
      fmt::print("\nruns.csv, by_seconds.csv, by_oracle_calls.csv and summary.json are in {}\n",
                 folder.path());
    }
  });
  return success;
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("compare", "Compare algorithms on one problem, by oracle calls and by seconds");
  command->footer(
      "Examples:\n"
      "  bilevel compare --problem hyper-cleaning --algorithms aid-cg,itd,soba --budget-seconds 5\n"
      "  bilevel compare --problem ridge --algorithms aid-cg,idarts --outer-rate 1 --budget-calls 2000 --out "
      "cmp");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options, &exit_code] { exit_code = run(*command, *options); });
}

}  // namespace bilevel::cli
