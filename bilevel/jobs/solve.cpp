#include "bilevel/jobs/solve.h"

#include <memory>
#include <utility>

#include "bilevel/check/diagnose.h"
#include "bilevel/data/npy.h"
#include "bilevel/run/result_json.h"

namespace bilevel {

SolveJobOptions::SolveJobOptions() {
  algorithm.solve.iterations = 200;
  algorithm.solve.records = 20;
}

const Fields<SolveJobOptions>& SolveJobOptions::fields() {
  static const Fields<SolveJobOptions> table = [] {
    using O = SolveJobOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.problem; }, ProblemChoice::fields());
    f.include(
        [](O & o) -> auto& { return o.algorithm; }, AlgorithmChoice::fields());
    f.include(
        [](O & o) -> auto& { return o.automatic; }, AutomaticOptions::fields());
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

namespace {

// Everything that decides the run, from the options and the problem.
NamedProblem set_up(SolveJobOptions& o, RunContext& context) {
  OptionsView view(o);
  refuse_ignored_accuracy(o.given, o.automatic, automatic_choice(context), wants_auto(o.algorithm));
  o.problem.data.tensors = apply(o.compute, context);
  NamedProblem problem = make_problem(view, o.problem, o.given);
  o.algorithm.solve.seed = o.problem.data.seed;
  if (wants_auto(o.algorithm)) {
    const InnerOptions& inner = o.algorithm.settings.inner;
    choose_method(view, o.given, diagnosed(problem), o.algorithm, o.automatic, context, inner,
                  o.given(inner.rate));
  }
  refuse_ignored(view, o.algorithm, {o.algorithm.algorithm}, !automatic_choice(context).is_null());
  set_problem_defaults(o.given, problem, o.algorithm);
  o.algorithm.solve.validate();
  return problem;
}

}  // namespace

SolveJobResult run_solve(SolveJobOptions o, RunContext& context) {
  const NamedProblem problem = set_up(o, context);
  const auto algorithm = make_algorithm(o.algorithm.algorithm, o.algorithm.settings);
  return run_solve_with(*algorithm, true, problem, std::move(o), context);
}

SolveJobResult run_solve_with(const Algorithm& algorithm, bool reads_inner_rate, const NamedProblem& problem,
                              SolveJobOptions o, RunContext& context) {
  const AlgorithmSettings& settings = o.algorithm.settings;
  context.open("solve", o.problem.data.seed, OptionsView(o));
  SolveJobResult result{.problem = problem.name, .settings = settings};
  result.folder = context.folder_name();
  context.work([&] {
    result.summary = solve_in(context, {.problem = *problem.problem,
                                        .algorithm = algorithm,
                                        .options = o.algorithm.solve,
                                        .data = digests_of(problem, o.problem)});
    const SolveSummary& summary = result.summary;
    Json json = {{"problem", problem.name}};
    if (context.has_folder()) json["folder"] = result.folder;
    json.update(solve_json(summary));
    add_communication(context, json);
    add_choice(automatic_choice(context), json);
    measure_choice_at_end(o.automatic, *problem.problem, settings, summary, context, json);
    if (reads_inner_rate) json["inner_rate"] = settings.inner.rate;
    json["outer_rate"] = settings.outer.rate;
    json["outer_loss"] = number(summary.records.back().outer_loss);
    result.end = end_of(summary);
    if (context.has_folder()) {
      write_files(result.end, [&] {
        write_npy(context.folder().file("x.npy"), summary.state.x);
        write_npy(context.folder().file("w.npy"), summary.inner_solution);
      });
    }
    context.end(result.end.status, result.end.message, json);
    result.json = std::move(json);
  });
  return result;
}

}  // namespace bilevel
