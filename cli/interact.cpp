// `bilevel interact`: how strongly tasks should pull at each other, learned on validation examples.

#include "bilevel/interact/interact.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/jobs/data_digest.h"
#include "bilevel/problems/task_files.h"
#include "bilevel/problems/task_sets.h"
#include "bilevel/run/stop_signal.h"
#include "cli/algorithm_options.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/interact_output.h"
#include "cli/run_options.h"
#include "cli/solve_run.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  AlgorithmFlags algorithm;
  InteractOptions interact = default_interact_options();
  std::string data = "synthetic";
  RunFlags run;
  ClusteredTasksOptions synthetic;
  TaskFileOptions files;
  uint64_t seed = 0;
};

const std::vector<std::string> of_files{"--train-labels", "--train-tasks", "--valid",       "--valid-labels",
                                        "--valid-tasks",  "--test",        "--test-labels", "--test-tasks",
                                        "--label-column", "--task-column", "--valid-part",  "--bias"};
const std::vector<std::string> of_synthetic{"--tasks",          "--clusters",       "--features",
                                            "--train-examples", "--valid-examples", "--test-examples",
                                            "--spread",         "--noise"};

void add_options(CLI::App& command, Options& o) {
  auto* files = command.add_option_group("your own files");
  files->add_option("--train", o.files.train.examples.features,
                    "training examples: svmlight, CSV or TSV with labels inside, or CSV, NPY or IDX with "
                    "--train-labels");
  files->add_option("--train-labels", o.files.train.examples.labels, "left out: inside --train");
  files->add_option("--train-tasks", o.files.train.tasks,
                    "which task every example belongs to, a whole number each; left out: --task-column, or "
                    "the classes are the tasks");
  files->add_option("--valid", o.files.valid.examples.features,
                    "validation examples; a part of every task's training examples if left out");
  files->add_option("--valid-labels", o.files.valid.examples.labels, "left out: inside --valid");
  files->add_option("--valid-tasks", o.files.valid.tasks, "of --valid");
  files->add_option("--test", o.files.test.examples.features, "test examples, which nothing is tuned on");
  files->add_option("--test-labels", o.files.test.examples.labels, "left out: inside --test");
  files->add_option("--test-tasks", o.files.test.tasks, "of --test");
  files
      ->add_option("--label-column", o.files.reading.label_column,
                   "of a table: first, last, a name of its header, or a position from 0")
      ->capture_default_str();
  files->add_option("--task-column", o.files.reading.group_column,
                    "of a table, said in the same way: which task an example belongs to");
  files->add_option("--valid-part", o.files.valid_part, "of the training examples, without --valid")
      ->capture_default_str();
  files->add_flag("--bias", o.files.bias, "append a column of ones");

  auto* made = command.add_option_group("made-up tasks with known clusters");
  made->add_option("--data", o.data, "synthetic")->check(CLI::IsMember({"synthetic"}))->capture_default_str();
  made->add_option("--tasks", o.synthetic.tasks, "how many")->capture_default_str();
  made->add_option("--clusters", o.synthetic.clusters, "that they fall into")->capture_default_str();
  made->add_option("--features", o.synthetic.features, "of an example")->capture_default_str();
  made->add_option("--train-examples", o.synthetic.train, "of every task")->capture_default_str();
  made->add_option("--valid-examples", o.synthetic.valid, "of every task")->capture_default_str();
  made->add_option("--test-examples", o.synthetic.test, "of every task")->capture_default_str();
  made->add_option("--spread", o.synthetic.spread, "how far a task's model is from its cluster's, of norm 1")
      ->capture_default_str();
  made->add_option("--noise", o.synthetic.noise, "standard deviation of what disturbs the labels")
      ->capture_default_str();

  auto* search = command.add_option_group("the search");
  search
      ->add_option("--patience", o.interact.patience,
                   "iterations without a smaller validation loss before it ends; 0 = never")
      ->capture_default_str();
  search
      ->add_option("--first-coupling", o.interact.problem.first_coupling,
                   "where C begins: the coupling's curvature over the data's")
      ->capture_default_str();
  search
      ->add_option("--first-regularizer", o.interact.problem.first_regularizer,
                   "where rho begins: the regulariser's curvature over the data's")
      ->capture_default_str();
  search->add_option("--seed", o.seed, "of the made-up tasks, of the split and of the batches")
      ->capture_default_str();

  o.algorithm.algorithm = "krmd";
  o.algorithm.settings = o.interact.settings;
  o.algorithm.solve = o.interact.solve;
  add_algorithm_options(command, o.algorithm);
  command.get_option("--truncate")
      ->description("K: the steps that krmd keeps; all T by default")
      ->default_str("");
  add_run_options(command, o.run);
  add_common_options(command, o.common);
}

// ---- what was asked for ----

void check_choice(const CLI::App& command) {
  const auto given = [&](const std::vector<std::string>& options) {
    std::vector<std::string> names;
    std::copy_if(options.begin(), options.end(), std::back_inserter(names),
                 [&](const std::string& option) { return command.count(option) > 0; });
    return names;
  };
  const bool files = command.count("--train") > 0;
  if (files && command.count("--data") > 0) {
    throw std::invalid_argument("--train and --data synthetic exclude each other");
  }
  if (const auto names = given(of_synthetic); files && !names.empty()) {
    throw std::invalid_argument(fmt::format(
        "{}: of made-up tasks; the files of --train are taken as they are", fmt::join(names, ", ")));
  }
  if (const auto names = given(of_files); !files && !names.empty()) {
    throw std::invalid_argument(fmt::format("{}: --train is missing", fmt::join(names, ", ")));
  }
  for (const std::string set : {"--valid", "--test"}) {
    for (const std::string what : {"-labels", "-tasks"}) {
      if (command.count(set + what) > 0 && command.count(set) == 0) {
        throw std::invalid_argument(fmt::format("{}{} without {}: give the examples too", set, what, set));
      }
    }
    if (command.count(set) > 0 && command.count(set + "-tasks") != command.count("--train-tasks")) {
      throw std::invalid_argument(
          fmt::format("--train-tasks and {}-tasks belong together: give {}", set,
                      command.count("--train-tasks") > 0 ? set + "-tasks too" : "--train-tasks too"));
    }
  }
  if (command.count("--task-column") > 0 && command.count("--train-tasks") > 0) {
    throw std::invalid_argument("--task-column and --train-tasks exclude each other: give one of the two");
  }
  if (command.count("--valid") > 0 && command.count("--valid-part") > 0) {
    throw std::invalid_argument("--valid-part divides the training file: leave it out with --valid");
  }
}

void complete(const CLI::App& command, Options& o) {
  AlgorithmFlags& f = o.algorithm;
  (void)find_algorithm(f.algorithm);
  if (command.count("--inner-rate") > 0) require_rate("interact", "inner_rate", f.settings.inner.rate);
  if (command.count("--outer-rate") > 0) require_rate("interact", "outer_rate", f.settings.outer.rate);
  // K-RMD with K = T is reverse mode.
  if (command.count("--truncate") == 0) f.settings.hypergradient.truncate = f.settings.inner.steps;
  f.solve.seed = o.seed;
  finish_algorithm_options(command, f);
  o.interact.algorithm = f.algorithm;
  o.interact.settings = f.settings;
  o.interact.solve = f.solve;
  o.interact.problem.rate = f.settings.inner.rate;
  o.interact.validate();
}

TaskSets load(Options& o, const at::TensorOptions& tensors) {
  if (o.files.train.examples.features.empty()) {
    o.synthetic.seed = o.seed;
    return draw_clustered_tasks(o.synthetic);
  }
  o.files.seed = o.seed;
  o.files.reading.dtype = c10::typeMetaToScalarType(tensors.dtype());
  return read_task_sets(o.files);
}

// ---- the work ----

// What a run is about; made-up tasks follow from the options.
nlohmann::json identity(const Options& o, const TaskSets& sets) {
  nlohmann::json data = {{"tasks", sets.task_names}, {"features", sets.train.features.size(1)}};
  if (o.files.train.examples.features.empty()) return data;
  std::vector<Tensor> contents;
  for (const TaskExamples* set : {&sets.train, &sets.valid, &sets.test}) {
    contents.insert(contents.end(), {set->features, set->labels, set->tasks});
  }
  data["digest"] = data_digest(contents, {sets.tasks, sets.classes});
  return data;
}

InteractReport work(const Options& o, const TaskSets& sets, RunFolder& folder,
                    const at::TensorOptions& tensors) {
  const auto checkpoint = load_run(folder, o.run, o.common);
  const Solver solver = [&](const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                            const SolveHooks& hooks, BestPoint& best) {
    return solve_in_folder(
        {.problem = problem,
         .algorithm = algorithm,
         .options = options,
         .run = o.run,
         .common = o.common,
         .command = "interact",
         .data = identity(o, sets),
         .hooks = hooks,
         .put = [&](Checkpoint& now) { put_best(now, best); },
         .take = [&](const Checkpoint& then) { best = take_best(then, tensors.device()); }},
        folder, checkpoint);
  };
  SolveHooks hooks;
  hooks.interrupted = stop_requested;
  return interact(sets, o.interact, tensors, hooks, {}, solver);
}

int run(CLI::App& command, Options& o) {
  take_options(command, o.run, o.common);
  if (repeats_finished_run(o.run, o.common)) return success;
  check_choice(command);
  complete(command, o);
  const at::TensorOptions tensors = apply_common_options(o.common);
  const TaskSets sets = load(o, tensors);
  const TaskInteraction check(sets, o.interact.problem, tensors);  // refuses before there is a folder
  AlgorithmFlags flags = o.algorithm;
  if (flags.settings.inner.rate == 0) flags.settings.inner.rate = check.rate();
  set_fixed_ratio_defaults(command, check, flags.settings.outer.rate, flags);
  o.interact.settings.outer = flags.settings.outer;
  const StopSignal on_signal;  // of all that follows, the baselines too
  RunFolder folder = open_run(command, o.run, o.seed);
  int exit_code = success;
  work_in(folder, [&] {
    const InteractReport report = work(o, sets, folder, tensors);
    const SolveSummary& summary = report.learned.summary;
    Json json = {{"folder", folder.path()}};
    if (!has_answer(summary)) {
      json.update(solve_json(summary));
      exit_code = end_without_answer(command, folder, summary, json, o.common);
      return;
    }
    const std::string& train = o.files.train.examples.features;
    const InteractOutput output{.sets = sets,
                                .report = report,
                                .data = train.empty() ? o.data : train,
                                .records = o.algorithm.solve.records};
    json.update(interact_json(output));
    if (o.common.json) {
      fmt::print("{}\n", json.dump());
    } else {
      print_interact(json);
      print_linear_solves(summary);
      print_failures(summary);
    }
    if (says(o.common, LogLevel::warning)) {
      for (const std::string& warning : report.warnings) fmt::print(stderr, "warning: {}\n", warning);
    }
    // Last: a full disk must not cost the answer.
    const std::vector<std::string> written = write_interact(output, json, folder.path());
    if (std::find(written.begin(), written.end(), "interaction.svg") == written.end() &&
        says(o.common, LogLevel::warning)) {
      fmt::print(stderr,
                 "bilevel: no interaction.svg: gnuplot is not here (Debian: apt-get install gnuplot-nox)\n");
    }
    exit_code = end_solve_run(command, folder, summary, json);
  });
  if (!o.common.json) fmt::print("the run is in {}\n", folder.path());
  return exit_code;
}

}  // namespace

void add_interact_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("interact", "Learn how strongly tasks (or classes) should pull at each other");
  command->footer(
      "Every task has a linear model. A matrix C says how much two models are drawn together; it is learned\n"
      "so that the models do well on validation examples, and compared with tasks trained on their own and\n"
      "with one model for all. Without --train-tasks or --task-column the classes are the tasks.\n"
      "Defaults: K-RMD with T = 100 and K = T, the inner rate from the data's curvature, Adam at 0.05, at\n"
      "most 150 iterations.\n"
      "Examples:\n"
      "  bilevel interact --data synthetic --clusters 3 --tasks 12 --json\n"
      "  bilevel interact --train shops.csv --task-column shop --label-column bought --out run1\n"
      "  bilevel interact --train x.npy --train-labels y.npy --test xt.npy --test-labels yt.npy");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options, &exit_code] { exit_code = run(*command, *options); });
}

}  // namespace bilevel::cli
