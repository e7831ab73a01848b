// `clean` with weights that an algorithm learns on the validation set.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/clean_run.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/run/result_json.h"

namespace bilevel {
namespace {

constexpr size_t most_suspects_in_json = 10;

// ---- the model and its defaults ----

void add_column_of_ones(CleaningSets& sets) {
  for (ExampleSet* set : {&sets.train, &sets.valid, &sets.test}) {
    if (set->size() > 0) set->features = append_ones(set->features);
  }
  sets.bias = true;
}

double safe_cleaning_rate(const Problem& problem, uint64_t seed) {
  const double curvature = start_curvature(problem, seed);
  if (!(curvature > 0) || !std::isfinite(curvature)) {
    throw OptionError(
        fmt::format("the training features give the inner problem a curvature of {}: are they all zero, or "
                    "far too large? Scale them, or use {}",
                    curvature, named("dtype", "double")));
  }
  return 1 / curvature;
}

CleaningModel make_cleaning_model(CleanJobOptions& o, const CleaningSets& sets,
                                  const at::TensorOptions& tensors) {
  if (o.model != "cnn") return make_linear_cleaning(sets, o.regularization, tensors);
  if (sets.image.size() != 2) {
    throw OptionError(fmt::format(
        "{}: {} holds no images (IDX or NPY of examples x height x width): use {}, or give images",
        named("model", "cnn"), o.files.train.features, named("model", "linear")));
  }
  CnnOptions cnn;
  if (!o.given(o.regularization)) o.regularization = cnn.regularization;
  cnn.regularization = o.regularization;
  return make_cnn_cleaning(sets, cnn, tensors);
}

// The convex model's rate comes from the curvature at weights of 1, whatever x is now.
DiagnosedProblem cleaning_facts(const CleaningModel& model, uint64_t seed) {
  const CleanOptions defaults = default_clean_options(model);
  const double safe = model.convex ? safe_cleaning_rate(*model.problem, seed) : defaults.settings.inner.rate;
  return {.problem = model.problem.get(),
          .name = "cleaning",
          .inner_steps = defaults.settings.inner.steps,
          .inner_rate = safe,
          .convex = model.convex,
          .largest_curvature = model.convex ? 1 / safe : 0,
          .check = {.solvable = model.convex}};
}

void choose_cleaning_method(CleanJobOptions& o, const CleaningModel& model, RunContext& context) {
  DiagnosedProblem problem = cleaning_facts(model, o.algorithm.solve.seed);
  InnerOptions inner = o.algorithm.settings.inner;
  const bool is_given = o.given(o.algorithm.settings.inner.rate);
  if (!is_given) inner.rate = problem.inner_rate;
  problem.inner_rate = inner.rate;
  choose_method(OptionsView(o), o.given, problem, o.algorithm, o.automatic, context, inner,
                is_given || model.convex);
}

// The defaults that depend on the model and on the data's curvature, where nothing else was given.
CleanOptions complete_clean_options(CleanJobOptions& o, const CleaningModel& model, bool chosen) {
  const CleanOptions defaults = default_clean_options(model);
  CleanOptions clean;
  AlgorithmChoice& choice = o.algorithm;
  const auto unless_given = [&](auto& field, const auto& value) {
    if (!o.given(field)) field = value;
  };
  if (!o.given(choice.algorithm)) {
    choice.algorithm = defaults.algorithm;
    unless_given(choice.settings.method, defaults.settings.method);
  }
  unless_given(choice.settings.inner.steps, defaults.settings.inner.steps);
  unless_given(choice.solve.batches.inner_batch, defaults.solve.batches.inner_batch);
  unless_given(choice.solve.batches.outer_batch, defaults.solve.batches.outer_batch);
  unless_given(choice.solve.iterations, defaults.solve.iterations);
  unless_given(o.final_steps, defaults.final_steps);
  clean.final_steps = o.final_steps;
  clean.final_batch = defaults.final_batch;
  clean.final_rate =
      model.convex ? safe_cleaning_rate(*model.problem, choice.solve.seed) : defaults.settings.inner.rate;
  unless_given(choice.settings.inner.rate, clean.final_rate);
  set_fixed_ratio_defaults(o.given, *model.problem, defaults.settings.outer.rate, choice);
  refuse_ignored(OptionsView(o), choice, {choice.algorithm}, chosen);
  finish(choice);
  clean.threshold = o.threshold;
  clean.most_suspects = o.most_suspects;
  clean.algorithm = choice.algorithm;
  clean.settings = choice.settings;
  clean.solve = choice.solve;
  return clean;
}

// ---- the work ----

std::string digest_of_cleaning(const CleaningSets& sets) {
  std::vector<Tensor> contents;
  for (const ExampleSet* set : {&sets.train, &sets.valid, &sets.test}) {
    if (set->size() == 0) continue;
    contents.push_back(set->labels);
    for (const Tensor& part : contents_of(set->features)) contents.push_back(part);
  }
  return data_digest(contents, {sets.train.features.columns(), sets.classes});
}

CleanResult clean_in(RunContext& context, const CleaningSets& sets, const CleaningModel& model,
                     const CleanOptions& options) {
  const std::string digest = digest_of_cleaning(sets);
  CleanHooks hooks;
  hooks.progress = [&](const std::string& what) { context.progress("clean: " + what); };
  hooks.interrupted = [&] { return context.interrupted(); };
  hooks.solve = [&](const Problem& problem, const Algorithm& algorithm, const SolveOptions& solve_options,
                    const SolveHooks& along, BestPoint& best) {
    SolveRun run{.problem = problem, .algorithm = algorithm, .options = solve_options, .job = "clean"};
    run.learned_name = "weights";
    run.learned = [](const Tensor& x) { return x.sigmoid(); };
    run.hooks = along;
    run.hooks.record = [&best](const SolveRecord& r, const AlgorithmState& state) {
      return best.take(r, state);
    };
    run.put = [&best](Checkpoint& now) { put_best(now, best); };
    const c10::Device device = problem.initial_outer(0).device();
    run.take = [&best, device](const Checkpoint& then) { best = take_best(then, device); };
    run.data = digest;
    return solve_in(context, run);
  };
  return clean(sets, model, options, hooks);
}

// ---- the summary ----

Json cleaning_percent(double value) { return value < 0 ? Json(nullptr) : number(value); }

Json trained_model_json(const TrainedModel& model) {
  return {{"test_accuracy", cleaning_percent(model.test_accuracy)},
          {"valid_accuracy", number(model.valid_accuracy)},
          {"valid_loss", number(model.valid_loss)},
          {"steps", model.steps},
          {"gradient_norm", number(model.gradient_norm)}};
}

Json weighted_suspect_json(const CleaningSets& sets, const CleanResult& r, int64_t i) {
  const auto label = [&](const Tensor& labels) { return label_json(sets, labels[i].item<int64_t>()); };
  Json out = {{"index", row_in_file(sets.train_rows, i)}};
  if (noise_was_drawn(sets)) out["position"] = sets.train_index[i].item<int64_t>();
  out["given_label"] = label(sets.train.labels);
  out["suggested_label"] = label(r.suggested);
  out["x"] = number(r.x[i].item<double>());
  out["weight"] = number(r.weights[i].item<double>());
  return out;
}

Json clean_json(const CleanJobResult& result, const Json& choice) {
  const CleanResult& r = result.clean;
  const CleaningSets& sets = result.sets;
  Json out = {{"data", result.data},
              {"model", result.model},
              {"algorithm", r.solve.algorithm},
              {"train_examples", sets.train.size()},
              {"valid_examples", sets.valid.size()},
              {"test_examples", sets.test.size()},
              {"classes", sets.classes},
              {"class_names", sets.class_names},
              {"test_accuracy", cleaning_percent(r.cleaned.test_accuracy)},
              {"valid_accuracy", number(r.cleaned.valid_accuracy)},
              {"valid_loss", number(r.cleaned.valid_loss)},
              {"baseline_test_accuracy", cleaning_percent(r.baseline.test_accuracy)},
              {"baseline_valid_accuracy", number(r.baseline.valid_accuracy)},
              {"baseline_valid_loss", number(r.baseline.valid_loss)},
              {"returned", r.kept_baseline ? "baseline" : "learned"},
              {"learned_valid_loss", number(r.learned_valid_loss)},
              {"best_iteration", r.best_iteration},
              {"threshold", result.options.threshold},
              {"flagged", r.flagged}};
  for (const auto& [suffix, detection] : {std::pair{"", r.wrong}, std::pair{"_replaced", r.replaced}}) {
    if (!detection) continue;
    out[std::string("f1") + suffix] = detection->f1();
    out[std::string("precision") + suffix] = detection->precision();
    out[std::string("recall") + suffix] = detection->recall();
  }
  const InnerOptions& inner = result.options.settings.inner;
  out["inner"] = {{"optimizer", inner.optimizer},
                  {"steps", inner.steps},
                  {"rate", inner.rate},
                  {"gradient_norm", number(r.inner_gradient_norm)},
                  {"first_gradient_norm", number(r.first_gradient_norm)}};
  add_choice(choice, out);
  out["final_training"] = trained_model_json(r.cleaned);
  out["baseline_training"] = trained_model_json(r.baseline);
  out["counts"] = counts_json(r.counts);
  out["seconds"] = result.seconds;
  out["solve"] = solve_json(r.solve);
  out["most_suspect"] = Json::array();
  for (size_t i = 0; i < std::min(most_suspects_in_json, r.suspects.size()); ++i) {
    out["most_suspect"].push_back(weighted_suspect_json(sets, r, r.suspects[i]));
  }
  out["warnings"] = r.warnings;
  if (!result.folder.empty()) out["folder"] = result.folder;
  return out;
}

Json unfinished_json(const CleanJobResult& result) {
  const SolveSummary& s = result.clean.solve;
  Json out = Json::object();
  if (!result.folder.empty()) out["folder"] = result.folder;
  out["stopped"] = name_of(s.reason);
  out["solve"] = solve_json(s);
  return out;
}

// Of the linear model features x classes, as the other way has it; of the network its weights as they lie.
void write_cleaned_model(CleanJobResult& result) {
  const CleaningSets& sets = result.sets;
  const bool is_linear = result.model == "linear";
  const Tensor w = result.clean.cleaned.w.detach().to(at::kCPU);
  write_npy(result.folder + "/model.npy",
            is_linear ? w.view({sets.classes, -1}).t().to(at::kDouble).contiguous() : w);
  write_saved_model(
      result.folder,
      saved_cleaning(sets, is_linear ? SavedModel::Kind::linear : SavedModel::Kind::cnn, sets.bias));
  result.files.insert(result.files.end(), {"model.npy", "model.json"});
}

}  // namespace

void clean_by_weights(CleanJobOptions& o, RunContext& context, const JobClock& clock,
                      CleanJobResult& result) {
  const at::TensorOptions tensors = tensor_options(o.compute, context);
  if (o.has_bias() && !result.sets.bias) add_column_of_ones(result.sets);
  const CleaningSets& sets = result.sets;
  const CleaningModel model = make_cleaning_model(o, sets, tensors);
  if (wants_auto(o.algorithm)) choose_cleaning_method(o, model, context);
  result.options = complete_clean_options(o, model, !automatic_choice(context).is_null());
  // Options that cannot be are refused before there is a run.
  result.options.validate(sets.train.size());
  result.options.solve.validate();
  (void)make_algorithm(result.options.algorithm, result.options.settings);
  context.open("clean", o.algorithm.solve.seed, OptionsView(o));
  result.folder = context.folder_name();
  context.work([&] {
    result.clean = clean_in(context, sets, model, result.options);
    result.seconds = clock.seconds();
    if (!result.clean.finished) {
      result.end = end_of(result.clean.solve);
      result.json = unfinished_json(result);
      context.end(result.end.status, result.end.message, result.json);
      return;
    }
    result.json = clean_json(result, automatic_choice(context));
    add_communication(context, result.json);
    measure_choice_at_end(o.automatic, *model.problem, result.options.settings, result.clean.solve, context,
                          result.json);
    for (const std::string& warning : result.clean.warnings) context.warning(warning);
    if (context.has_folder()) {
      write_files(result.end, [&] {
        result.files = write_clean_files(sets, result.clean, result.folder);
        write_cleaned_model(result);
      });
    }
    context.end(result.end.status, result.end.message, result.json);
  });
}

RunProblem clean_problem(const StoredRun& stored) {
  struct Made {
    CleanJobOptions options = {};
    CleaningSets sets = {};
    CleaningModel model = {};
  };
  const auto made = std::make_shared<Made>();
  CleanJobOptions& o = made->options;
  give_rest(OptionsView(o), stored.given);
  if (wants_table(o) && !std::filesystem::exists(stored.folder + "/checkpoint")) {
    throw OptionError(
        fmt::format("{}: a run of `bilevel clean --by noise-model` solves its problems to the end and keeps "
                    "no point to diagnose; start one with {}",
                    stored.folder, named("by", clean_ways().algorithm)));
  }
  check_clean_sources(o, false);
  const at::TensorOptions tensors = apply(o.compute, RunContext());
  made->sets = read_clean_data(o);
  if (o.has_bias() && !made->sets.bias) add_column_of_ones(made->sets);
  made->model = make_cleaning_model(o, made->sets, tensors);
  RunProblem run;
  run.owner = made;
  run.facts = cleaning_facts(made->model, o.algorithm.solve.seed);
  run.inner.rate = run.facts.inner_rate;
  run.rate_is_given = made->model.convex;
  run.seed = o.algorithm.solve.seed;
  return run;
}

}  // namespace bilevel
