#include "bilevel/jobs/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/run/result_json.h"

namespace bilevel {

// ---- options ----

CompareJobOptions::CompareJobOptions() { algorithm.solve.records = 20; }

const Fields<CompareJobOptions>& CompareJobOptions::fields() {
  static const Fields<CompareJobOptions> table = [] {
    using O = CompareJobOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.problem; }, ProblemChoice::fields());
    f.add(
         "algorithms", [](O & o) -> auto& { return o.compare.algorithms; },
         "algorithms, separated by commas; `bilevel list` shows them")
        .first();
    f.add(
         "seeds", [](O & o) -> auto& { return o.seeds; },
         "list of random seeds for the starting points and batches: 0-2 (three seeds), 0,3,7 or 2-2 (one "
         "seed)")
        .first();
    f.include(
        [](O & o) -> auto& { return o.algorithm; }, AlgorithmChoice::fields_of_settings());
    f.row("iterations").by_rule();
    f.heading("search for rates (off if --outer-rate is given)");
    f.add(
         "search_seconds", [](O & o) -> auto& { return o.compare.search.seconds; },
         "seconds for each algorithm, all candidates together; 0 = as long as one run")
        .in(at_least(0))
        .by_rule();
    f.add(
         "outer_rates", [](O & o) -> auto& { return o.compare.search.outer_rates; },
         "candidate outer rates, separated by commas")
        .in(above(0));
    f.add(
         "inner_factors", [](O & o) -> auto& { return o.compare.search.inner_factors; },
         "candidate factors of the inner rate, separated by commas")
        .in(above(0));
    f.heading("");
    f.add(
        "own_loss", [](O & o) -> auto& { return o.own_loss; },
        "compare f(x, w) at the algorithm's own w, not at the inner solution");
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

namespace {

constexpr int64_t curve_points = 20;
constexpr int64_t iterations_without_limit = 100'000'000;

void set_up(const NamedProblem& problem, CompareJobOptions& o) {
  CompareOptions& c = o.compare;
  const Given& given = o.given;
  const AlgorithmSettings& settings = o.algorithm.settings;
  SolveOptions& budget = o.algorithm.solve;
  refuse_ignored(OptionsView(o), o.algorithm, c.algorithms, false);
  set_problem_defaults(given, problem, o.algorithm);
  if (budget.seconds == 0 && budget.oracle_calls == 0 && !given(budget.iterations)) budget.seconds = 5;
  if (!given(budget.iterations)) budget.iterations = iterations_without_limit;
  c.settings = settings;
  c.cold_steps = given(settings.inner.steps) ? settings.inner.steps : problem.inner_steps;
  c.solve = budget;
  c.seeds = o.seeds.seeds;
  c.search.on = !given(settings.outer.rate);
  // As in the papers.
  if (c.search.on && !given(settings.outer.optimizer)) c.settings.outer.optimizer = "sgd";
  c.measure_value = problem.convex && !o.own_loss;
  if (o.compute.dtype == "float") c.value.relative_tolerance = 1e-5;  // what single precision reaches
  // The papers' batches of 50, but not all of a small set: a rule for minibatches would have none.
  const Problem& p = *problem.problem;
  c.stochastic_batches = budget.batches;
  if (!given(budget.batches.inner_batch)) {
    c.stochastic_batches.inner_batch = std::clamp<int64_t>(p.inner_samples() / 4, 1, 50);
  }
  if (!given(budget.batches.outer_batch)) {
    c.stochastic_batches.outer_batch = std::clamp<int64_t>(p.outer_samples() / 4, 1, 50);
  }
  c.validate();
}

// ---- what came out ----

std::string_view family_name(Family family) {
  return family == Family::cold ? "cold" : family == Family::warm ? "warm" : "stochastic";
}

Json spread_json(const MeanAndSpread& m) { return {{"mean", number(m.mean)}, {"spread", number(m.spread)}}; }

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

Json compared_run_json(const ComparedRun& run) {
  const ComparedRecord &first = run.records.front(), &last = run.records.back();
  Json out = {{"seed", run.seed}, {"stopped", name_of(run.summary.reason)}};
  if (!run.summary.message.empty()) out["message"] = run.summary.message;
  out["iterations"] = run.summary.state.iteration;
  out["seconds"] = run.summary.seconds;
  out["counts"] = counts_json(run.summary.counts);
  out["linear_solves"] = run.summary.statuses;
  out["loss_first"] = number(first.value);
  out["loss_last"] = number(last.value);
  if (last.gradient_norm) out["gradient_norm_last"] = number(*last.gradient_norm);
  out["x_norm"] = number(run.summary.state.x.norm().item<double>());
  out["decreased"] = last.value < first.value;
  return out;
}

Json comparison_json(const CompareJobResult& result) {
  const CompareOptions& c = result.options;
  const Comparison& comparison = result.comparison;
  Json out = {{"problem", result.problem}};
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
    const ComparedOverSeeds all = over_seeds(a, c.settings);
    Json row = {{"name", a.name},
                {"family", family_name(a.family)},
                {"inner_steps", all.inner_steps ? Json(*all.inner_steps) : Json()},
                {"inner_rate", a.inner_rate},
                {"outer_rate", a.outer_rate},
                {"candidates", a.candidates},
                {"failed_candidates", a.failed_candidates},
                {"dropped_candidates", a.dropped_candidates}};
    if (a.schedule_iterations > 0) row["schedule_iterations"] = a.schedule_iterations;
    row["yardstick"] = name_of(comparison.yardstick);
    row["loss"] = spread_json(all.value);
    if (all.gradient_norm) row["gradient_norm"] = spread_json(*all.gradient_norm);
    row["runs"] = Json::array();
    for (const ComparedRun& run : a.runs) row["runs"].push_back(compared_run_json(run));
    row["by_seconds"] = curve_json(a, CurveAxis::seconds);
    row["by_calls"] = curve_json(a, CurveAxis::oracle_calls);
    out["algorithms"].push_back(std::move(row));
  }
  return out;
}

void write_runs(const Comparison& comparison, std::ostream& out) {
  out << "algorithm,seed,iteration,seconds,oracle_calls,inner_gradients,outer_gradients,hessian_products,"
         "cross_products,samples,yardstick,loss,gradient_norm,own_loss,direction_norm\n";
  for (const ComparedAlgorithm& a : comparison.algorithms) {
    for (const ComparedRun& run : a.runs) {
      for (const ComparedRecord& r : run.records) {
        const OracleCounts& c = r.record.counts;
        out << fmt::format("{},{},{},{},{},{},{},{},{},{},\"{}\",{},{},{},{}\n", a.name, run.seed,
                           r.record.iteration, r.record.seconds, oracle_calls(c), c.inner_gradient,
                           c.outer_gradient, c.hessian, c.cross, c.samples, name_of(comparison.yardstick),
                           r.value, r.gradient_norm ? fmt::to_string(*r.gradient_norm) : "",
                           r.record.outer_loss,
                           r.record.direction_norm < 0 ? "" : fmt::to_string(r.record.direction_norm));
      }
    }
  }
}

void write_curves(const Comparison& comparison, CurveAxis axis, const std::string& name, std::ostream& out) {
  out << "algorithm," << name << ",yardstick,loss_mean,loss_spread,gradient_norm_mean,gradient_norm_spread\n";
  for (const ComparedAlgorithm& a : comparison.algorithms) {
    for (const CurvePoint& p : curve(a, axis, curve_points)) {
      out << fmt::format("{},{},\"{}\",{},{},{},{}\n", a.name, p.used, name_of(comparison.yardstick),
                         p.value.mean, p.value.spread,
                         p.gradient_norm ? fmt::to_string(p.gradient_norm->mean) : "",
                         p.gradient_norm ? fmt::to_string(p.gradient_norm->spread) : "");
    }
  }
}

void save_tables(const Comparison& comparison, const std::string& folder) {
  write_file(folder + "/runs.csv", [&](std::ostream& out) { write_runs(comparison, out); });
  for (const CurveAxis axis : {CurveAxis::seconds, CurveAxis::oracle_calls}) {
    const std::string name = axis == CurveAxis::seconds ? "seconds" : "oracle_calls";
    write_file(folder + "/by_" + name + ".csv",
               [&](std::ostream& out) { write_curves(comparison, axis, name, out); });
  }
}

struct ComparisonInterrupted {};

}  // namespace

ComparedOverSeeds over_seeds(const ComparedAlgorithm& a, const AlgorithmSettings& settings) {
  ComparedOverSeeds all;
  // What a user-defined algorithm does with T is unknown here.
  const auto& rows = algorithm_rows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const AlgorithmRow& r) { return r.name == a.name; });
  if (row != rows.end() && options_read(*row, settings).contains("inner_steps")) {
    all.inner_steps = a.inner_steps;
  }
  std::vector<double> iterations, calls, values, norms;
  for (const ComparedRun& run : a.runs) {
    iterations.push_back(static_cast<double>(run.summary.state.iteration));
    calls.push_back(static_cast<double>(oracle_calls(run.summary.counts)));
    values.push_back(run.records.back().value);
    if (const auto norm = run.records.back().gradient_norm) norms.push_back(*norm);
    all.diverged = all.diverged || ended_badly(run.summary.reason);
  }
  all.iterations = mean_and_spread(iterations).mean;
  all.oracle_calls = mean_and_spread(calls).mean;
  all.value = mean_and_spread(values);
  if (norms.size() == a.runs.size()) all.gradient_norm = mean_and_spread(norms);
  return all;
}

std::string yardstick_text(const CompareOptions& c, Yardstick yardstick) {
  if (yardstick == Yardstick::own_loss) return "f(x, w) at the algorithm's own w";
  return fmt::format("f(x, w*(x)), with the inner problem solved to {:g} of its first gradient",
                     c.value.relative_tolerance);
}

CompareJobResult run_compare(CompareJobOptions o, RunContext& context) {
  if (o.compare.algorithms.empty()) {
    throw OptionError(
        fmt::format("{} is required: name at least one, `bilevel list` shows them", named("algorithms")));
  }
  o.problem.data.tensors = apply(o.compute, context);
  const NamedProblem problem = make_problem(OptionsView(o), o.problem, o.given);
  set_up(problem, o);
  context.open("compare", o.problem.data.seed, OptionsView(o));
  CompareJobResult result{.problem = problem.name, .options = o.compare};
  result.folder = context.folder_name();
  context.work([&] {
    try {
      result.comparison = compare_algorithms(
          *problem.problem, o.compare,
          [&](const std::string& what) {
            if (context.interrupted_here()) throw ComparisonInterrupted{};
            context.progress("compare: " + what);
          },
          context.group().get());
    } catch (const ComparisonInterrupted&) {
      if (context.group()) context.group()->fail("interrupted", 130);
      result.end.status = RunStatus::interrupted;
      context.end(result.end.status, "", nullptr);
      return;
    }
    result.json = comparison_json(result);
    if (context.has_folder()) write_files(result.end, [&] { save_tables(result.comparison, result.folder); });
    context.end(result.end.status, result.end.message, result.json);
  });
  return result;
}

}  // namespace bilevel
