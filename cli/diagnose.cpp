// `bilevel diagnose`: how a problem's inner curvature looks, what every estimator would cost for a wished
// accuracy, and which one to take.

#include "bilevel/check/diagnose.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/run/run_folder.h"
#include "bilevel/run/state_checkpoint.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/diagnose_output.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/run_options.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  ProblemFlags problem;
  DiagnoseOptions diagnose;
  std::string at;
};

void add_options(CLI::App& command, Options& o) {
  DiagnoseOptions& d = o.diagnose;
  add_problem_options(command, o.problem);
  command.add_option("--at", o.at,
                     "folder of a run of solve or clean: its problem, at the x and w of its checkpoint");
  command.add_option("--accuracy", d.accuracy, "wished relative error of the hypergradient")
      ->capture_default_str();
  command
      .add_option("--terms", d.settings.terms, "K whose error is asked for; the K that is needed is found")
      ->capture_default_str();
  command.add_option("--truncate", d.settings.truncate, "the same for truncated")->capture_default_str();
  command
      .add_option("--calls", d.calls_per_method,
                  "gradients and products to find the K of one method with; beyond them it is extrapolated")
      ->capture_default_str();
  command.add_option("--patience", d.patience, "seconds: what would take longer is not measured")
      ->capture_default_str();
  auto* inner = command.add_option_group("inner loop: what is left out is chosen");
  inner->add_option("--inner-steps", d.inner.steps, "T");
  inner->add_option("--inner-rate", d.inner.rate, "rate of the inner steps");
  inner->add_option("--inner-optimizer", d.inner.optimizer, "gd, heavy-ball, nesterov or adam");
  inner->add_option("--inner-momentum", d.inner.momentum, "of heavy-ball and nesterov");
  auto* implicit = command.add_option_group("implicit estimators");
  implicit->add_option("--curvature", d.settings.curvature.kind, "hessian or gauss-newton")
      ->check(CLI::IsMember({"hessian", "gauss-newton"}));
  implicit->add_option("--damping", d.settings.curvature.damping, "rho in H + rho I");
  add_common_options(command, o.common);
}

// ---- a run's point ----

// Which options of a run say what its problem is; the rest is about how it was solved.
const std::set<std::string>& problem_option_names() {
  static const std::set<std::string> names = {
      "--problem",        "--seed",         "--weight-decay",   "--train-features", "--train-labels",
      "--valid-features", "--valid-labels", "--regularization", "--bias",           "--data",
      "--data-dir",       "--corruption",   "--train-size",     "--valid-size",     "--space",
      "--operations",     "--channels",     "--cells",          "--image-size",     "--images",
      "--dtype"};
  return names;
}

// The run's problem, as if its options had been typed here.
void take_problem(CLI::App& command, const std::string& folder) {
  const std::string owner = read_run(folder).command;
  if (owner != "solve" && owner != "clean") {
    throw std::invalid_argument(fmt::format(
        "--at {}: it is a run of `bilevel {}`; diagnose reads those of solve and clean", folder, owner));
  }
  const Json config = read_json_file(folder + "/config.json");
  const Json& options = config.at("options");
  if (owner == "clean") {
    for (const char* option : {"--train", "--valid", "--no-bias"}) {
      if (options.contains(option)) {
        throw std::invalid_argument(
            fmt::format("--at {}: the run has {}; of clean, diagnose reads runs on a named set (--data)",
                        folder, option));
      }
    }
    if (config.at("effective").value("--model", "linear") != "linear") {
      throw std::invalid_argument(
          fmt::format("--at {}: of clean, diagnose reads runs with --model linear", folder));
    }
    set_option(command, "--problem", "hyper-cleaning");
  }
  for (const auto& [name, values] : options.items()) {
    if (problem_option_names().count(name) == 0 || command.count(name) > 0) continue;
    CLI::Option* option = command.get_option(name);
    for (const std::string& value : values.get<std::vector<std::string>>()) option->add_result(value);
    option->run_callback();
  }
  if (command.count("--dtype") == 0) {
    set_option(command, "--dtype", config.at("effective").value("--dtype", "double"));
  }
}

void take_point(const Options& o, const Problem& problem, DiagnoseOptions& d) {
  const Checkpoint checkpoint = load_checkpoint(o.at + "/checkpoint");
  if (!checkpoint.warning.empty()) fmt::print(stderr, "warning: {}\n", checkpoint.warning);
  const Tensor x = problem.initial_outer(d.seed), w = problem.initial_inner(d.seed);
  const AlgorithmState state = take_state(checkpoint, x.device());
  if (state.x.numel() != x.numel() || state.inner.w.numel() != w.numel()) {
    throw std::runtime_error(fmt::format(
        "--at {}: its checkpoint has {} outer and {} inner variables, its problem {} and {}: the data have "
        "changed since",
        o.at, state.x.numel(), state.inner.w.numel(), x.numel(), w.numel()));
  }
  d.x = state.x;
  d.w = state.inner.w;
}

// ---- what to type ----

std::string shell_word(const std::string& value) {
  const bool plain =
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
      std::string::npos;
  return plain && !value.empty() ? value : "'" + value + "'";
}

// The options that say which problem it is, as they were given.
void collect_problem(const CLI::App& app, std::string& text) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || option->results().empty() || problem_option_names().count(name) == 0)
      continue;
    text += " " + name;
    if (option->get_expected_max() == 0) continue;  // a flag
    std::string values;
    for (const std::string& value : option->results()) values += (values.empty() ? "" : ",") + value;
    text += " " + shell_word(values);
  }
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    collect_problem(*group, text);
  }
}

std::string command_line(const std::string& command, const std::string& problem, const OptionList& options) {
  std::string text = "bilevel " + command + problem;
  for (const auto& [name, value] : options) text += " " + name + " " + shell_word(value);
  return text;
}

void run(CLI::App& command, Options& o) {
  if (!o.at.empty()) take_problem(command, o.at);
  o.problem.data.tensors = apply_common_options(o.common);
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  DiagnoseOptions& d = o.diagnose;
  d.given = {.optimizer = given("--inner-optimizer"),
             .momentum = given("--inner-momentum"),
             .rate = given("--inner-rate"),
             .steps = given("--inner-steps")};
  d.curvature_given = given("--curvature") || given("--damping");
  d.seed = d.settings.seed = o.problem.data.seed;
  d.validate();
  Diagnosis diagnosis;
  bool learned_rate = false;
  {
    Progress progress(o.common);
    progress("diagnose: reading the problem");
    const NamedProblem problem = make_problem(command, o.problem);
    if (!o.at.empty()) take_point(o, *problem.problem, d);
    learned_rate = problem.problem->inner_rate(problem.problem->initial_outer(d.seed)).defined();
    diagnosis =
        diagnose(diagnosed(problem), d, [&](const std::string& what) { progress("diagnose: " + what); });
  }
  std::string problem_text;
  collect_problem(command, problem_text);
  std::vector<std::string> commands;
  // It begins at the problem's start, where a run's numbers do not hold.
  if (o.at.empty()) {
    commands.push_back(command_line("check", problem_text, check_options(diagnosis, learned_rate)));
  }
  commands.push_back(command_line("solve", problem_text, algorithm_options(diagnosis, learned_rate)));
  if (o.common.json) {
    fmt::print("{}\n", diagnosis_json(diagnosis, commands).dump());
  } else {
    print_diagnosis(diagnosis, commands);
  }
}

}  // namespace

void add_diagnose_command(CLI::App& app, int& /*exit_code*/) {
  CLI::App* command = app.add_subcommand(
      "diagnose", "Say how hard a problem is and which hypergradient, K, T and rate to use");
  command->footer(
      "Examples:\n"
      "  bilevel diagnose --problem ridge\n"
      "  bilevel diagnose --problem hyper-cleaning --data fashion-mnist --accuracy 0.01\n"
      "  bilevel diagnose --problem mlp --json\n"
      "  bilevel diagnose --at runs/solve-20260101-120000-0");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options] { run(*command, *options); });
}

}  // namespace bilevel::cli
