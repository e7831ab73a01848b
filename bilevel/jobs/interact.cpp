#include "bilevel/jobs/interact.h"

#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/jobs/interact_run.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/jobs/table_choice.h"
#include "bilevel/problems/task_interaction.h"
#include "bilevel/run/result_json.h"

namespace bilevel {
namespace {

void mark_given(InteractJobOptions& o) {
  InteractJobOptions defaults;
  OptionsView(o).mark_changed(OptionsView(defaults));
}

// What the options alone decide.
InteractOptions complete_interact_options(InteractJobOptions& o) {
  AlgorithmChoice& choice = o.algorithm;
  AlgorithmSettings& s = choice.settings;
  (void)find_algorithm(choice.algorithm);
  if (o.given(s.inner.rate)) require_positive("interact", "inner_rate", s.inner.rate);
  if (o.given(s.outer.rate)) require_positive("interact", "outer_rate", s.outer.rate);
  // K-RMD with K = T is reverse mode.
  if (!o.given(s.hypergradient.truncate)) s.hypergradient.truncate = s.inner.steps;
  refuse_ignored(OptionsView(o), choice, {choice.algorithm}, false);
  finish(choice);
  InteractOptions interact;
  interact.algorithm = choice.algorithm;
  interact.settings = s;
  interact.solve = choice.solve;
  interact.patience = o.patience;
  interact.problem = o.problem;
  interact.problem.rate = s.inner.rate;
  interact.validate();
  return interact;
}

TaskSets read_tasks(const InteractJobOptions& o, at::ScalarType dtype, TableSchema& schema) {
  if (o.files.train.examples.features.empty()) {
    ClusteredTasksOptions synthetic = o.synthetic;
    synthetic.seed = o.algorithm.solve.seed;
    return draw_clustered_tasks(synthetic);
  }
  TaskFileOptions files = o.files;
  files.seed = o.algorithm.solve.seed;
  files.reading.dtype = dtype;
  TaskTables tables = read_task_tables(files);
  schema = std::move(tables.schema);
  return tables.sets;
}

// What a run is about; made-up tasks follow from the options.
nlohmann::json identity_of_tasks(const TaskSets& sets, bool made_up) {
  nlohmann::json data = {{"tasks", sets.task_names}, {"features", sets.train.features.size(1)}};
  if (made_up) return data;
  std::vector<Tensor> contents;
  for (const TaskExamples* set : {&sets.train, &sets.valid, &sets.test}) {
    contents.insert(contents.end(), {set->features, set->labels, set->tasks});
  }
  data["digest"] = data_digest(contents, {sets.tasks, sets.classes});
  return data;
}

InteractResult interact_in(RunContext& context, const TaskSets& sets, const InteractOptions& options,
                           const at::TensorOptions& tensors, const nlohmann::json& identity) {
  const Solver solver = [&](const Problem& problem, const Algorithm& algorithm,
                            const SolveOptions& solve_options, const SolveHooks& hooks, BestPoint& best) {
    return solve_in(context,
                    {.problem = problem,
                     .algorithm = algorithm,
                     .options = solve_options,
                     .job = "interact",
                     .data = identity,
                     .hooks = hooks,
                     .put = [&](Checkpoint& now) { put_best(now, best); },
                     .take = [&](const Checkpoint& then) { best = take_best(then, tensors.device()); }});
  };
  SolveHooks hooks;
  hooks.interrupted = [&] { return context.interrupted(); };
  return interact(sets, options, tensors, hooks, {}, solver);
}

void finish_result(const InteractJobOptions& o, RunContext& context, InteractJobResult& result) {
  const SolveSummary& summary = result.interact.learned.summary;
  result.end = end_of(summary);
  if (context.has_folder()) result.json["folder"] = result.folder;
  if (!has_answer(summary)) {
    result.json.update(solve_json(summary));
  } else {
    result.suggested = suggest_clusters(result.interact.learned.interaction);
    if (!result.sets.clusters.empty()) {
      result.means = cluster_means(result.interact.learned.interaction, result.sets.clusters);
      result.rand_index = rand_index(result.suggested, result.sets.clusters);
    }
    result.json.update(interact_json(result, o.algorithm.solve.records));
    add_communication(context, result.json);
    for (const std::string& warning : result.interact.warnings) context.warning(warning);
    if (context.has_folder()) {
      write_files(result.end, [&] {
        if (!write_interact_files(result)) {
          context.warning("no interaction.svg: gnuplot is not here (Debian: apt-get install gnuplot-nox)");
        }
      });
    }
  }
  context.end(result.end.status, result.end.message, result.json);
}

InteractJobResult interact_on(InteractJobOptions& o, InteractOptions options, InteractJobResult result,
                              const at::TensorOptions& tensors, bool made_up, RunContext& context) {
  const TaskInteraction check(result.sets, options.problem, tensors);  // refuses before there is a folder
  InteractJobOptions with_rates = o;
  AlgorithmChoice& choice = with_rates.algorithm;
  if (choice.settings.inner.rate == 0) choice.settings.inner.rate = check.rate();
  set_fixed_ratio_defaults(with_rates.given, check, choice.settings.outer.rate, choice);
  options.settings.outer = choice.settings.outer;
  context.open("interact", o.algorithm.solve.seed, OptionsView(o));
  result.folder = context.folder_name();
  result.json = Json::object();
  context.work([&] {
    result.interact =
        interact_in(context, result.sets, options, tensors, identity_of_tasks(result.sets, made_up));
    finish_result(o, context, result);
  });
  return result;
}

}  // namespace

InteractJobResult run_interact(InteractJobOptions o, RunContext& context) {
  mark_given(o);
  check_task_sources(o);
  const InteractOptions options = complete_interact_options(o);
  const at::TensorOptions tensors = apply(o.compute, context);
  const std::string& train = o.files.train.examples.features;
  InteractJobResult result;
  result.data = train.empty() ? o.data : train;
  tell_notes(o.files.reading, context);
  result.sets = read_tasks(o, c10::typeMetaToScalarType(tensors.dtype()), result.schema);
  result.has_bias = o.files.bias;
  return interact_on(o, options, std::move(result), tensors, train.empty(), context);
}

InteractJobResult run_interact(InteractJobOptions o, const TaskSets& tasks, RunContext& context) {
  mark_given(o);
  refuse_task_sources(o);
  tasks.validate();
  const InteractOptions options = complete_interact_options(o);
  const at::TensorOptions tensors = apply(o.compute, context);
  InteractJobResult result;
  result.sets = tasks;
  return interact_on(o, options, std::move(result), tensors, false, context);
}

}  // namespace bilevel
