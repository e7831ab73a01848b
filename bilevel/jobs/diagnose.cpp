#include "bilevel/jobs/diagnose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <utility>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/clean.h"
#include "bilevel/jobs/diagnosis_json.h"
#include "bilevel/jobs/recommended_options.h"
#include "bilevel/jobs/search.h"
#include "bilevel/jobs/tune.h"
#include "bilevel/run/run_folder.h"
#include "bilevel/run/shell_word.h"
#include "bilevel/run/state_checkpoint.h"

namespace bilevel {

const Fields<DiagnoseJobOptions>& DiagnoseJobOptions::fields() {
  static const Fields<DiagnoseJobOptions> table = [] {
    using O = DiagnoseJobOptions;
    Fields<O> f;
    f.include(
        [](O & o) -> auto& { return o.problem; }, ProblemChoice::fields());
    f.add(
         "at", [](O & o) -> auto& { return o.at; },
         "folder of a run of solve, clean, tune or search: diagnose its problem, at the x and w of its "
         "checkpoint")
        .is(FieldKind::place)
        .first();
    f.add(
         "accuracy", [](O & o) -> auto& { return o.diagnose.accuracy; },
         "target relative error of the hypergradient")
        .in(between_0_and_1())
        .first();
    f.add(
         "terms", [](O & o) -> auto& { return o.diagnose.settings.terms; },
         "K to measure the error at; the K that is needed is found in any case")
        .in(at_least(0, bounds::within_step));
    f.add(
         "truncate", [](O & o) -> auto& { return o.diagnose.settings.truncate; },
         "K of truncated to measure the error at")
        .in(at_least(0, bounds::within_step));
    f.add(
         "calls", [](O & o) -> auto& { return o.diagnose.calls_per_method; },
         "gradients and products to spend on the K of each estimator (the exact hypergradient may take 32 "
         "times as many); beyond them K is extrapolated")
        .in(at_least(1, bounds::endless));
    f.heading("inner loop; default: chosen by the diagnosis");
    f.add(
         "inner_steps", [](O & o) -> auto& { return o.diagnose.inner.steps; }, "T: inner steps")
        .in(at_least(0, bounds::within_step))
        .by_rule();
    f.add(
         "inner_rate", [](O & o) -> auto& { return o.diagnose.inner.rate; }, "rate of the inner steps")
        .in(above(0))
        .by_rule();
    f.add(
         "inner_optimizer", [](O & o) -> auto& { return o.diagnose.inner.optimizer; },
         "inner optimiser: gd, heavy-ball, nesterov or adam")
        .by_rule();
    f.add(
         "inner_momentum", [](O & o) -> auto& { return o.diagnose.inner.momentum; },
         "momentum of heavy-ball and nesterov")
        .in(from_0_below_1())
        .by_rule();
    f.heading("implicit estimators");
    f.add(
         "curvature", [](O & o) -> auto& { return o.diagnose.settings.curvature.kind; },
         "curvature matrix: hessian or gauss-newton")
        .one_of({"hessian", "gauss-newton"})
        .by_rule();
    f.add(
         "damping", [](O & o) -> auto& { return o.diagnose.settings.curvature.damping; },
         "damping rho in H + rho I")
        .in(at_least(0))
        .by_rule();
    f.include(
        [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
    return f;
  }();
  return table;
}

namespace {

// ---- which problem ----

// The options that define the problem; the others say how it was solved.
std::vector<const Field*> problem_fields(const OptionsView& options) {
  std::vector<const Field*> fields;
  for (const Field& field : ProblemChoice::fields().rows()) fields.push_back(&options.at(field.name));
  fields.push_back(&options.at("dtype"));
  return fields;
}

// The problem of a run of solve, as if its options had been given here.
void take_problem(OptionsView options, const StoredRun& run) {
  const auto take = [&](const Field& field, const NamedWords& stored) {
    for (const auto& [name, words] : stored) {
      if (name == field.name && !words.empty() && !options.is_given(field)) options.give(field, words);
    }
  };
  for (const Field* field : problem_fields(options)) take(*field, run.given);
  take(options.at("dtype"), run.effective);
}

bool is_of_environment(const OptionsView& options, const Field& field) {
  const char* value = field.environment.empty() ? nullptr : std::getenv(field.environment.c_str());
  return value != nullptr && options.words(field) == std::vector<std::string>{value};
}

// A run of another job makes its problem from its own options, so none may be given here.
void refuse_problem(const OptionsView& options, const std::string& folder, const std::string& job) {
  for (const Field* field : problem_fields(options)) {
    if (!options.is_given(*field) || is_of_environment(options, *field)) continue;
    throw OptionError(fmt::format("{} with {}: the problem is that of the {} run; leave it out",
                                  named(field->name), named("at", folder), job));
  }
}

RunProblem problem_of(const std::string& job, const std::string& folder) {
  if (job == "clean") return clean_problem(read_stored_run(folder));
  if (job == "tune") return tune_problem(read_stored_run(folder));
  std::string why = "which solves no bilevel problem";
  if (job == "train") why = "which trains a fixed network and has no outer problem";
  if (job == "learn") why = "whose inner problem differs from task to task";
  if (job == "interact") {
    why = fmt::format("whose problem cannot be made again (see {})", named("problem", "task-interaction"));
  }
  throw OptionError(
      fmt::format("{}: it is a run of `bilevel {}`, {}; diagnose reads runs of solve, clean, tune and search",
                  named("at", folder), job, why));
}

void take_point(const std::string& folder, const Problem& problem, const RunContext& context,
                DiagnoseOptions& d) {
  const Checkpoint checkpoint = load_checkpoint(folder + "/checkpoint");
  if (!checkpoint.warning.empty()) context.warning(checkpoint.warning);
  const Tensor x = problem.initial_outer(d.seed), w = problem.initial_inner(d.seed);
  const AlgorithmState state = take_state(checkpoint, x.device());
  if (state.x.numel() != x.numel() || state.inner.w.numel() != w.numel()) {
    throw RunError(
        fmt::format("{}: its checkpoint has {} outer and {} inner variables, its problem {} and {}: the data "
                    "have changed since",
                    named("at", folder), state.x.numel(), state.inner.w.numel(), x.numel(), w.numel()));
  }
  d.x = state.x;
  d.w = state.inner.w;
}

// ---- what to do ----

// The options that define the problem, as they were given.
NamedWords given_problem(const OptionsView& options) {
  NamedWords given;
  for (const Field* field : problem_fields(options)) {
    if (!options.is_given(*field)) continue;
    std::vector<std::string> words = options.words(*field);
    if (field->type == FieldType::flag) {
      if (words.front() != "true") continue;
      words.clear();
    }
    given.emplace_back(field->name, std::move(words));
  }
  return given;
}

SuggestedJob suggestion(const std::string& job, const NamedWords& problem, const NamedWords& advice) {
  SuggestedJob suggested{.job = job, .options = problem};
  suggested.options.insert(suggested.options.end(), advice.begin(), advice.end());
  return suggested;
}

// `job` solves the problem further; `problem` are the options that define it.
void look(const DiagnosedProblem& facts, const std::string& job, const NamedWords& problem,
          DiagnoseJobOptions& o, const RunContext& context, DiagnoseJobResult& result) {
  DiagnoseOptions& d = o.diagnose;
  if (!o.at.empty()) take_point(o.at, *facts.problem, context, d);
  result.diagnosis =
      diagnose(facts, d, [&](const std::string& what) { context.progress("diagnose: " + what); });
  const Diagnosis& found = result.diagnosis;
  if (found.unsafe_rate) return;
  const bool learned_rate = facts.problem->inner_rate(facts.problem->initial_outer(d.seed)).defined();
  // check begins at the problem's start, where a run's numbers do not hold.
  if (o.at.empty()) {
    result.suggested.push_back(suggestion("check", problem, recommended_check_options(found, learned_rate)));
  }
  result.suggested.push_back(suggestion(job, problem, recommended_algorithm_options(found, learned_rate)));
}

}  // namespace

std::string command_line(const SuggestedJob& suggested) {
  std::string line = fmt::format("bilevel {}", suggested.job);
  for (const auto& [name, words] : suggested.options) {
    line += fmt::format(" {}", flag_of(name));
    if (!words.empty()) line += fmt::format(" {}", shell_word(fmt::format("{}", fmt::join(words, ","))));
  }
  return line;
}

DiagnoseJobResult run_diagnose(DiagnoseJobOptions o, RunContext& context) {
  const OptionsView view(o);
  const std::string owner = o.at.empty() ? "" : read_run(o.at).command;
  DiagnoseOptions& d = o.diagnose;
  d.given = {.optimizer = o.given(d.inner.optimizer),
             .momentum = o.given(d.inner.momentum),
             .rate = o.given(d.inner.rate),
             .steps = o.given(d.inner.steps)};
  d.curvature_given = o.given(d.settings.curvature.kind) || o.given(d.settings.curvature.damping);
  d.validate();
  context.progress("diagnose: reading the problem");
  DiagnoseJobResult result;
  if (owner == "search") {
    refuse_problem(view, o.at, owner);
    const double accuracy = o.given(d.accuracy) ? d.accuracy : 0.1;
    result.search = diagnose_search_run(read_stored_run(o.at), accuracy, context);
    result.json = search_diagnosis_json(*result.search);
    return result;
  }
  if (owner.empty() || owner == "solve") {
    if (!o.at.empty()) take_problem(view, read_stored_run(o.at));
    o.problem.data.tensors = apply(o.compute, context);
    d.seed = d.settings.seed = o.problem.data.seed;
    const NamedProblem problem = make_problem(view, o.problem, o.given);
    look(diagnosed(problem), "solve", given_problem(view), o, context, result);
  } else {
    refuse_problem(view, o.at, owner);
    const RunProblem run = problem_of(owner, o.at);
    if (o.given(o.compute.threads)) (void)apply(o.compute, context);  // the run had its own
    d.seed = d.settings.seed = run.seed;
    if (!d.given.rate) {
      d.inner.rate = run.inner.rate;
      d.given.rate = run.rate_is_given;
    }
    look(run.facts, owner, {{"config", {o.at + "/config.json"}}}, o, context, result);
  }
  std::vector<std::string> commands;
  for (const SuggestedJob& job : result.suggested) commands.push_back(command_line(job));
  result.json = diagnosis_json(result.diagnosis, commands);
  return result;
}

}  // namespace bilevel
