#include "bilevel/jobs/interact.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
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

TaskSets read_tasks(const InteractJobOptions& o, bool by_table, at::ScalarType dtype, TableSchema& schema) {
  if (o.files.train.examples.features.empty()) {
    ClusteredTasksOptions synthetic = o.synthetic;
    synthetic.seed = o.algorithm.solve.seed;
    return draw_clustered_tasks(synthetic);
  }
  TaskFileOptions files = o.files;
  files.seed = o.algorithm.solve.seed;
  files.reading.dtype = dtype;
  files.splits = !by_table;
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

void finish_search(const InteractJobOptions& o, RunContext& context, InteractJobResult& result) {
  const SolveSummary& summary = result.interact.learned.summary;
  result.end = end_of(summary);
  if (has_answer(summary)) {
    finish_interact(o, context, result);
    return;
  }
  if (context.has_folder()) result.json["folder"] = result.folder;
  result.json.update(solve_json(summary));
  context.end(result.end.status, result.end.message, result.json);
}

void interact_by_algorithm(InteractJobOptions& o, InteractOptions options, const at::TensorOptions& tensors,
                           bool made_up, RunContext& context, InteractJobResult& result) {
  result.by = interact_ways().algorithm;
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
    finish_search(o, context, result);
  });
}

// False: the Hessians are too large, and no option insists.
bool is_for_newton(const InteractJobOptions& o, const TaskSets& sets) {
  const int64_t columns = sets.train.features.size(1), folds = sets.valid.size() > 0 ? 1 : o.table.folds;
  const int64_t rows = sets.train.size() + sets.valid.size();
  if (is_small_enough_for_newton(rows, sets.tasks, columns, sets.classes, folds)) return true;
  if (o.table.by == "auto" && !o.given(o.table.folds) && !o.table.no_standardize) return false;
  throw OptionError(
      fmt::format("{}: {} rows of {} tasks with {} features and {} classes in {} folds are too many for "
                  "Newton's method; use {}",
                  named("by", interact_ways().table), rows, sets.tasks, columns, sets.classes, folds,
                  named("by", interact_ways().algorithm)));
}

void require_own_examples(const InteractJobOptions& o, bool classes_are_tasks) {
  if (o.table.by != interact_ways().table || !classes_are_tasks) return;
  throw OptionError(fmt::format(
      "{} without {} or {}: the classes are the tasks, but it needs tasks with their own examples; use {}",
      named("by", o.table.by), named("task_column"), named("train_tasks"),
      named("by", interact_ways().algorithm)));
}

// Bytes as files of bytes are read.
TaskSets with_scaled_bytes(TaskSets sets) {
  const bool are_bytes = sets.train.size() > 0 && sets.train.features.scalar_type() == at::kByte;
  for (const auto& [set, name] :
       {std::pair{&sets.train, "train"}, std::pair{&sets.valid, "valid"}, std::pair{&sets.test, "test"}}) {
    if (set->size() == 0) continue;
    if ((set->features.scalar_type() == at::kByte) != are_bytes) {
      throw std::invalid_argument(fmt::format(
          "{}: its features are {}, those of train are {}: bytes are divided by 255 and other "
          "numbers are not; give both alike",
          name, are_bytes ? "numbers" : "bytes (uint8)", are_bytes ? "bytes (uint8)" : "numbers"));
    }
    if (are_bytes) set->features = set->features.to(at::kDouble).div_(255);
  }
  return sets;
}

void require_interact_cpu(const InteractJobOptions& o, RunContext& context) {
  refuse_ranks(context, named("by", interact_ways().table), "take " + named("by", interact_ways().algorithm));
  if (o.compute.device == "cpu") return;
  throw OptionError(fmt::format("{}: held-out rows are computed on the CPU: use {}",
                                named("device", o.compute.device), named("device", "cpu")));
}

}  // namespace

void finish_interact(const InteractJobOptions& o, RunContext& context, InteractJobResult& result) {
  if (context.has_folder()) result.json["folder"] = result.folder;
  result.suggested = suggest_clusters(result.interact.learned.interaction);
  if (!result.sets.clusters.empty()) {
    result.means = cluster_means(result.interact.learned.interaction, result.sets.clusters);
    result.rand_index = rand_index(result.suggested, result.sets.clusters);
  }
  result.json.update(interact_json(result, o));
  add_communication(context, result.json);
  for (const std::string& warning : result.interact.warnings) context.warning(warning);
  if (context.has_folder()) {
    write_files(result.end, [&] {
      if (!write_interact_files(result)) {
        context.warning("no interaction.svg: gnuplot is not installed (Debian: apt-get install gnuplot-nox)");
      }
    });
  }
  context.end(result.end.status, result.end.message, result.json);
}

InteractJobResult run_interact(InteractJobOptions o, RunContext& context) {
  const JobClock clock;
  mark_given(o);
  keep_earlier_way(OptionsView(o), context, interact_ways());
  check_task_sources(o);
  const std::string& train = o.files.train.examples.features;
  const bool made_up = train.empty(),
             has_tasks = o.given(o.files.reading.group_column) || o.given(o.files.train.tasks);
  require_own_examples(o, !made_up && !has_tasks);
  const bool by_table = wants_table(o, has_tasks, o.given(o.files.valid.examples.features) || made_up);
  if (by_table) require_interact_cpu(o, context);
  const InteractOptions options = by_table ? InteractOptions{} : complete_interact_options(o);
  const at::TensorOptions tensors = apply(o.compute, context);
  InteractJobResult result;
  result.data = made_up ? o.data : train;
  tell_notes(o.files.reading, context);
  result.sets = read_tasks(o, by_table, c10::typeMetaToScalarType(tensors.dtype()), result.schema);
  result.has_bias = o.files.bias;
  if (by_table && is_for_newton(o, result.sets)) {
    interact_by_held_out(o, context, clock, result);
    return result;
  }
  if (by_table && result.sets.valid.size() == 0) {
    split_off_validation(result.sets, o.files.valid_part, o.algorithm.solve.seed, train);
  }
  interact_by_algorithm(o, by_table ? complete_interact_options(o) : options, tensors, made_up, context,
                        result);
  return result;
}

InteractJobResult run_interact(InteractJobOptions o, const TaskSets& given, RunContext& context) {
  const JobClock clock;
  const TaskSets tasks = with_scaled_bytes(given);
  mark_given(o);
  keep_earlier_way(OptionsView(o), context, interact_ways());
  refuse_task_sources(o);
  const bool has_valid = tasks.valid.size() > 0;
  require_own_examples(o, tasks.classes_are_tasks);
  InteractJobResult result;
  result.sets = tasks;
  if (wants_table(o, !tasks.classes_are_tasks, has_valid)) {
    tasks.validate(false);
    if (is_for_newton(o, tasks)) {
      require_interact_cpu(o, context);
      (void)apply(o.compute, context);
      interact_by_held_out(o, context, clock, result);
      return result;
    }
  }
  if (!has_valid) {
    throw OptionError(fmt::format("{} is missing: {} needs validation examples", named("valid"),
                                  named("by", interact_ways().algorithm)));
  }
  tasks.validate();
  const InteractOptions options = complete_interact_options(o);
  const at::TensorOptions tensors = apply(o.compute, context);
  interact_by_algorithm(o, options, tensors, false, context, result);
  return result;
}

}  // namespace bilevel
