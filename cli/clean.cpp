// `bilevel clean`: finds bad labels in a training set with the help of a clean validation set, or of a noise
// model.

#include "bilevel/clean/clean.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/jobs/data_digest.h"
#include "bilevel/run/stop_signal.h"
#include "bilevel/tables/scaled_table.h"
#include "cli/algorithm_options.h"
#include "cli/auto_method.h"
#include "cli/clean_output.h"
#include "cli/clean_table.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/run_problem.h"
#include "cli/solve_run.h"
#include "cli/table_choice.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common{.dtype = "float"};
  AlgorithmFlags algorithm;
  CleanOptions clean;
  CleaningFileOptions files;
  NamedCleaningOptions named;
  std::string model = "linear";
  double regularization = 0.001;  // K-RMD
  bool no_bias = false;
  std::string data;
  RunFlags run;
  AutoFlags automatic;
  TableFlags table;
};

constexpr const char *by_noise_model = "noise-model", *by_weights = "weights";

void add_options(CLI::App& command, Options& o) {
  auto* files = command.add_option_group("your own files");
  files->add_option("--train", o.files.train.features, "examples with some bad labels");
  files->add_option("--train-labels", o.files.train.labels, "left out: the labels are inside --train");
  files->add_option("--valid", o.files.valid.features,
                    "examples whose labels are right; a table can do without (--by noise-model)");
  files->add_option("--valid-labels", o.files.valid.labels, "left out: inside --valid");
  files->add_option("--test", o.files.test.features, "to measure the cleaned model on");
  files->add_option("--test-labels", o.files.test.labels, "left out: inside --test");
  files
      ->add_option("--label-column", o.files.reading.label_column,
                   "of a table without a file of labels: first, last, a name or a position from 0")
      ->capture_default_str();
  files
      ->add_option("--classes", o.files.classes,
                   "labels must be 0 to N-1, all present; 0 = the labels that --train has")
      ->capture_default_str();

  auto* named = command.add_option_group("a named set with noise drawn on it");
  named->add_option("--data", o.data, "mnist or fashion-mnist");
  named
      ->add_option("--data-dir", o.named.folder,
                   "folder of sets known by name: fetched, or unpacked as they come")
      ->envname("BILEVEL_DATA")
      ->capture_default_str();
  named->add_option("--corruption", o.named.corruption, "probability that a training label is replaced")
      ->capture_default_str();
  named->add_option("--train-size", o.named.train, "class-balanced")->capture_default_str();
  named->add_option("--valid-size", o.named.valid, "class-balanced")->capture_default_str();

  auto* model = command.add_option_group("model and list");
  model->add_option("--model", o.model, "linear (softmax regression) or cnn (small network, images only)")
      ->check(CLI::IsMember({"linear", "cnn"}))
      ->capture_default_str();
  model->add_option("--regularization", o.regularization, "of |W|^2; 0.001 for linear, 0 for cnn");
  model->add_flag("--no-bias", o.no_bias, "no column of ones after the features");
  model
      ->add_option("--threshold", o.clean.threshold, "x below this makes a suspect; its weight is sigmoid(x)")
      ->capture_default_str();
  model->add_option("--suspects", o.clean.most_suspects, "at most this many in the list; 0 = no limit")
      ->capture_default_str();
  model->add_option("--final-steps", o.clean.final_steps,
                    "of training the final model, at most; 2000 for linear, 1000 for cnn");
  model->add_option("--seed", o.algorithm.solve.seed, "of the split, the noise, the batches and the start")
      ->capture_default_str();

  add_table_options(command, o.table, by_noise_model, by_weights);
  o.algorithm.algorithm = "krmd";
  o.algorithm.settings = default_clean_options({.problem = {}, .scores = {}, .convex = true}).settings;
  add_algorithm_options(command, o.algorithm);
  add_auto_options(command, o.automatic);
  add_run_options(command, o.run);
  add_common_options(command, o.common);
}

// ---- what was asked for ----

// Whether the way of tables is meant, as far as the command line tells; pictures are found when they are
// read.
bool wants_table(const CLI::App& command, const Options& o) {
  const bool possible = o.data.empty() && o.model == "linear";
  if (!possible && o.table.by == by_noise_model) {
    throw std::invalid_argument(
        fmt::format("--by noise-model with {}: it is for one's own tables and the linear model; leave one of "
                    "them out",
                    o.data.empty() ? "--model cnn" : "--data " + o.data));
  }
  return means_table(command, o.table, by_noise_model, by_weights,
                     {"--threshold", "--regularization", "--no-bias", "--final-steps"}, possible);
}

void check_sources(const CLI::App& command, const Options& o, bool needs_valid) {
  const auto given = [&](const std::vector<std::string>& options) {
    std::vector<std::string> names;
    for (const std::string& option : options) {
      if (command.get_option(option)->count() > 0 && !command.get_option(option)->results().empty()) {
        names.push_back(option);
      }
    }
    return names;
  };
  const std::vector<std::string> own = given({"--train", "--train-labels", "--valid", "--valid-labels",
                                              "--test", "--test-labels", "--label-column", "--classes"});
  const std::vector<std::string> drawn = given({"--corruption", "--train-size", "--valid-size"});
  if (!o.data.empty() && !own.empty()) {
    throw std::invalid_argument(fmt::format("--data {} with {}: a named set or your own files, not both",
                                            o.data, fmt::join(own, ", ")));
  }
  if (o.model == "cnn" && o.no_bias) {
    throw std::invalid_argument("--no-bias changes nothing for --model cnn: it is of linear; leave it out");
  }
  if (!o.data.empty()) return;
  if (o.files.valid.features.empty() && !o.files.valid.labels.empty()) {
    throw std::invalid_argument(fmt::format("--valid-labels {}: --valid is missing", o.files.valid.labels));
  }
  if (o.files.train.features.empty() || (needs_valid && o.files.valid.features.empty())) {
    throw std::invalid_argument(
        fmt::format("{} missing: clean needs --train and --valid with their labels, or --data",
                    !o.files.train.features.empty()   ? "--valid is"
                    : !o.files.valid.features.empty() ? "--train is"
                                                      : "--train and --valid are"));
  }
  if (!drawn.empty()) {
    throw std::invalid_argument(fmt::format(
        "{}: noise and sizes are for --data; your files are taken as they are", fmt::join(drawn, ", ")));
  }
  if (o.files.test.features.empty() && !o.files.test.labels.empty()) {
    throw std::invalid_argument(fmt::format("--test-labels {}: --test is missing", o.files.test.labels));
  }
  if (command.count("--label-column") > 0 && !o.files.train.labels.empty() &&
      (o.files.valid.features.empty() || !o.files.valid.labels.empty()) &&
      (o.files.test.features.empty() || !o.files.test.labels.empty())) {
    throw std::invalid_argument(fmt::format(
        "--label-column {} changes nothing: every set has a file of labels; leave it out, or those files",
        o.files.reading.label_column));
  }
}

CleaningSets load(Options& o, const at::TensorOptions& tensors) {
  const bool bias = !o.no_bias && o.model == "linear";
  const auto dtype = c10::typeMetaToScalarType(tensors.dtype());
  if (!o.data.empty()) {
    o.named.set = o.data;
    o.named.seed = o.algorithm.solve.seed;
    o.named.bias = bias;
    o.named.dtype = dtype;
    return make_named_cleaning_sets(o.named);
  }
  o.files.bias = bias;
  o.files.reading.dtype = dtype;
  CleaningSets sets = read_cleaning_sets(o.files);
  if (o.model == "cnn" && sets.image.size() != 2) {
    throw std::invalid_argument(
        fmt::format("--model cnn: {} holds no images (IDX or NPY of examples x height x width): use --model "
                    "linear, or give images",
                    o.files.train.features));
  }
  return sets;
}

double safe_rate(const Problem& problem, uint64_t seed) {
  const double curvature = start_curvature(problem, seed);
  if (!(curvature > 0) || !std::isfinite(curvature)) {
    throw std::invalid_argument(
        fmt::format("the training features give the inner problem a curvature of {}: are they all zero, or "
                    "far too large? "
                    "Scale them, or use --dtype double",
                    curvature));
  }
  return 1 / curvature;
}

// The defaults that depend on the model and on the data's curvature, where the user gave nothing else.
void complete(const CLI::App& command, const CleaningModel& model, Options& o) {
  const CleanOptions defaults = default_clean_options(model);
  const auto missing = [&](const char* option) { return command.count(option) == 0; };
  AlgorithmFlags& flags = o.algorithm;
  InnerOptions& inner = flags.settings.inner;
  if (missing("--algorithm")) {
    flags.algorithm = defaults.algorithm;
    if (missing("--method")) flags.settings.method = defaults.settings.method;
  }
  if (missing("--inner-steps")) inner.steps = defaults.settings.inner.steps;
  if (missing("--inner-batch")) flags.solve.batches.inner_batch = defaults.solve.batches.inner_batch;
  if (missing("--outer-batch")) flags.solve.batches.outer_batch = defaults.solve.batches.outer_batch;
  if (missing("--iterations")) flags.solve.iterations = defaults.solve.iterations;
  if (missing("--final-steps")) o.clean.final_steps = defaults.final_steps;
  o.clean.final_batch = defaults.final_batch;
  o.clean.final_rate =
      model.convex ? safe_rate(*model.problem, flags.solve.seed) : defaults.settings.inner.rate;
  if (missing("--inner-rate")) inner.rate = o.clean.final_rate;
  set_fixed_ratio_defaults(command, *model.problem, defaults.settings.outer.rate, flags);
  finish_algorithm_options(command, flags);
  o.clean.algorithm = flags.algorithm;
  o.clean.settings = flags.settings;
  o.clean.solve = flags.solve;
}

CleaningModel make_model(const CLI::App& command, Options& o, const CleaningSets& sets,
                         const at::TensorOptions& tensors) {
  if (o.model != "cnn") return make_linear_cleaning(sets, o.regularization, tensors);
  CnnOptions cnn;
  if (command.count("--regularization") == 0) o.regularization = cnn.regularization;
  cnn.regularization = o.regularization;
  return make_cnn_cleaning(sets, cnn, tensors);
}

// The convex model's rate comes from the curvature at weights of 1, whatever x is now.
DiagnosedProblem facts_of(const CleaningModel& model, uint64_t seed) {
  const CleanOptions defaults = default_clean_options(model);
  const double safe = model.convex ? safe_rate(*model.problem, seed) : defaults.settings.inner.rate;
  return {.problem = model.problem.get(),
          .name = "cleaning",
          .inner_steps = defaults.settings.inner.steps,
          .inner_rate = safe,
          .convex = model.convex,
          .largest_curvature = model.convex ? 1 / safe : 0,
          .check = {.solvable = model.convex}};
}

void choose(CLI::App& command, const CleaningModel& model, Options& o, Progress& progress) {
  DiagnosedProblem problem = facts_of(model, o.algorithm.solve.seed);
  InnerOptions inner = o.algorithm.settings.inner;
  const bool given = command.count("--inner-rate") > 0;
  if (!given) inner.rate = problem.inner_rate;
  problem.inner_rate = inner.rate;
  choose_method(command, problem, o.algorithm, o.automatic, progress, inner, given || model.convex);
}

// ---- the work ----

using Clock = std::chrono::steady_clock;

std::string digest_of(const CleaningSets& sets) {
  std::vector<Tensor> contents;
  for (const CleaningSet* set : {&sets.train, &sets.valid, &sets.test}) {
    if (set->size() == 0) continue;
    contents.push_back(set->labels);
    for (const Tensor& part : contents_of(set->features)) contents.push_back(part);
  }
  return data_digest(contents, {sets.train.features.columns(), sets.classes});
}

CleanReport clean_in_folder(const Options& o, const CleaningSets& sets, const CleaningModel& model,
                            RunFolder& folder, Progress& progress) {
  const auto checkpoint = load_run(folder, o.run, o.common);
  const std::string digest = digest_of(sets);
  CleanHooks hooks;
  hooks.progress = [&](const std::string& what) { progress("clean: " + what); };
  hooks.interrupted = [] { return stop_requested(); };
  hooks.solve = [&](const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                    const SolveHooks& along, BestPoint& best) {
    SolveJob job{.problem = problem,
                 .algorithm = algorithm,
                 .options = options,
                 .run = o.run,
                 .common = o.common,
                 .command = "clean"};
    job.learned_name = "weights";
    job.learned = [](const Tensor& x) { return x.sigmoid(); };
    job.hooks = along;
    job.hooks.record = [&best](const SolveRecord& r, const AlgorithmState& state) {
      return best.take(r, state);
    };
    job.put = [&best](Checkpoint& now) { put_best(now, best); };
    const c10::Device device = problem.initial_outer(0).device();
    job.take = [&best, device](const Checkpoint& then) { best = take_best(then, device); };
    job.data = digest;
    return solve_in_folder(job, folder, checkpoint);
  };
  return clean(sets, model, o.clean, hooks);
}

void show_finished(const Options& o, const CleaningModel& model, const CleanOutput& output,
                   RunFolder& folder) {
  Json json = clean_json(output);
  measure_choice_at_end(o.automatic, *model.problem, o.clean.settings, output.report.solve, o.common, json);
  if (o.common.json) {
    fmt::print("{}\n", json.dump());
  } else {
    print_clean(output);
    print_linear_solves(output.report.solve);
    print_failures(output.report.solve);
  }
  if (says(o.common, LogLevel::warning)) {
    for (const std::string& warning : output.report.warnings) fmt::print(stderr, "warning: {}\n", warning);
  }
  write_clean(output);  // last: a full disk must not cost the answer
  folder.end(RunStatus::finished, "", json);
  if (!o.common.json) {
    fmt::print("written to {}: weights.csv, suspects.csv, summary.json{}\n", folder.path(),
               output.named ? ", noise.csv" : "");
  }
}

bool insists_on_table(const CLI::App& command, const Options& o) {
  return o.table.by == by_noise_model || command.count("--folds") > 0 || o.table.no_standardize ||
         o.files.valid.features.empty();
}

// The noise model runs on the CPU: on another device the weights are learned, unless somebody insists.
bool runs_here(const CLI::App& command, const Options& o) {
  if (o.common.device == "cpu") return true;
  if (!insists_on_table(command, o)) return false;
  throw std::invalid_argument(
      fmt::format("--device {}: --by noise-model runs on the CPU; take --device cpu, or --by weights with a "
                  "--valid",
                  o.common.device));
}

// False: the files hold pictures, or a table whose dense form is too large, and nobody insists.
bool run_table(CLI::App& command, Options& o, int& exit_code) {
  o.files.bias = false;
  o.files.reading.dtype = c10::typeMetaToScalarType(apply_common_options(o.common).dtype());
  const CleaningSets sets = read_cleaning_sets(o.files);
  const Features& train = sets.train.features;
  const bool fits = is_small_enough({&train, &sets.valid.features, &sets.test.features}, sets.classes);
  if (!insists_on_table(command, o) && (!fits || sets.image.size() > 1)) return false;
  if (!fits) {
    throw std::invalid_argument(fmt::format(
        "--by noise-model: {} has {} rows of {} columns and {} classes, and it takes sets of at most "
        "{} numbers, by columns and by classes; take --by weights with a --valid",
        o.files.train.features, train.rows(), train.columns(), sets.classes, largest_table));
  }
  run_clean_table(
      command,
      {o.common, o.run, o.table, o.files.train.features, o.clean.most_suspects, o.algorithm.solve.seed}, sets,
      exit_code);
  return true;
}

void run(CLI::App& command, Options& o, int& exit_code) {
  const auto begin = Clock::now();
  take_options(command, o.run, o.common);
  if (repeats_finished_run(o.run, o.common)) return;
  keep_earlier_way(command, o.run.resume, by_weights);
  const bool table = wants_table(command, o) && runs_here(command, o);
  check_sources(command, o, !table);
  if (table && run_table(command, o, exit_code)) return;
  const at::TensorOptions tensors = apply_common_options(o.common);
  refuse_ignored_accuracy(command, o.automatic, wants_auto(o.algorithm));
  (void)find_algorithm(o.algorithm.algorithm);  // an unknown one before the data are read
  Progress progress(o.common);
  progress("clean: reading the data");
  const CleaningSets sets = load(o, tensors);
  const CleaningModel model = make_model(command, o, sets, tensors);
  if (wants_auto(o.algorithm)) choose(command, model, o, progress);
  complete(command, model, o);
  // What is wrong by itself is said before there is a run.
  o.clean.validate(sets.train.size());
  o.clean.solve.validate();
  (void)make_algorithm(o.clean.algorithm, o.clean.settings);
  RunFolder folder = open_run(command, o.run, o.algorithm.solve.seed);
  work_in(folder, [&] {
    const StopSignal on_signal;
    const CleanReport report = clean_in_folder(o, sets, model, folder, progress);
    progress.clear();
    if (!report.finished) {
      const SolveSummary& s = report.solve;
      const Json json = {{"folder", folder.path()}, {"stopped", name_of(s.reason)}, {"solve", solve_json(s)}};
      exit_code = end_without_answer(command, folder, s, json, o.common);
      return;
    }
    CleanOutput output{.sets = sets, .report = report, .options = o.clean};
    output.automatic = o.automatic;
    output.data = o.data.empty() ? o.files.train.features : o.data;
    output.model = o.model;
    output.named = !o.data.empty();
    output.folder = folder.path();
    output.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    show_finished(o, model, output, folder);
  });
}

}  // namespace

RunProblem clean_problem(const std::string& folder) {
  struct Made {
    Options options;
    CleaningSets sets;
    CleaningModel model;
  };
  CLI::App command("", "clean");
  const auto made = std::make_shared<Made>();
  Options& o = made->options;
  add_options(command, o);
  o.run.config = folder + "/config.json";
  take_options(command, o.run, o.common);
  if (wants_table(command, o) && !std::filesystem::exists(folder + "/checkpoint")) {
    throw std::invalid_argument(fmt::format(
        "{}: a run of `bilevel clean --by noise-model` solves its problems to the end and keeps no point to "
        "diagnose; make one with --by weights",
        folder));
  }
  check_sources(command, o, true);
  const at::TensorOptions tensors = apply_common_options(o.common);
  made->sets = load(o, tensors);
  made->model = make_model(command, o, made->sets, tensors);
  RunProblem run;
  run.owner = made;
  run.facts = facts_of(made->model, o.algorithm.solve.seed);
  run.inner.rate = run.facts.inner_rate;
  run.rate_is_given = made->model.convex;
  run.seed = o.algorithm.solve.seed;
  return run;
}

void add_clean_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("clean", "Find bad labels, with or without a clean validation set");
  command->footer(
      "One weight per training example is learned so that a model trained on the weighted set does well on\n"
      "the validation set; what ends with hardly any weight is suspect. Files may be IDX, NPY, CSV, TSV or\n"
      "svmlight, plain or .gz (but for NPY); bytes are scaled to [0, 1].\n"
      "Defaults: T = 100 Nesterov steps at 1/L, L the largest curvature at the start; Adam at 0.2, 100\n"
      "iterations; float (--dtype double works). cnn: double-loop with truncated, T = 5 at rate 0.02, "
      "batches of\n"
      "256, 200 iterations.\n"
      "A table is cleaned by a model of how its labels go wrong, which reads none of this (docs/tables.md).\n"
      "Examples:\n"
      "  bilevel clean --train x.npy --train-labels y.npy --valid xv.npy --valid-labels yv.npy --out "
      "cleaned\n"
      "  bilevel clean --train noisy.csv --valid clean.csv --label-column class\n"
      "  bilevel clean --data fashion-mnist --corruption 0.5 --train-size 5000 --valid-size 5000 --json\n"
      "  bilevel clean --resume cleaned");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options, &exit_code] { run(*command, *options, exit_code); });
}

}  // namespace bilevel::cli
