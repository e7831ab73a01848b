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

#include "bilevel/jobs/clean.h"
#include "bilevel/jobs/run_problem.h"
#include "bilevel/jobs/search.h"
#include "bilevel/jobs/tune.h"
#include "bilevel/run/run_context.h"
#include "bilevel/run/run_folder.h"
#include "bilevel/run/shell_word.h"
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
  command.add_option(
      "--at", o.at,
      "folder of a run of solve, clean, tune or search: its problem, at the x and w of its checkpoint");
  command.add_option("--accuracy", d.accuracy, "wished relative error of the hypergradient")
      ->capture_default_str();
  command
      .add_option("--terms", d.settings.terms, "K whose error is asked for; the K that is needed is found")
      ->capture_default_str();
  command.add_option("--truncate", d.settings.truncate, "the same for truncated")->capture_default_str();
  command
      .add_option("--calls", d.calls_per_method,
                  "gradients and products to find the K of one method with (the exact hypergradient may take "
                  "32 times "
                  "as many); beyond them K is extrapolated")
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

// The problem of a run of solve, as if its options had been typed here.
void take_problem(CLI::App& command, const std::string& folder) {
  const Json config = read_json_file(folder + "/config.json");
  for (const auto& [name, values] : config.at("options").items()) {
    if (problem_option_names().count(name) == 0 || command.count(name) > 0) continue;
    CLI::Option* option = command.get_option(name);
    for (const std::string& value : values.get<std::vector<std::string>>()) option->add_result(value);
    option->run_callback();
  }
  if (command.count("--dtype") == 0) {
    set_option(command, "--dtype", config.at("effective").value("--dtype", "double"));
  }
}

// Of a command that makes its problem from its own options.
RunProblem problem_of_run(const CLI::App& command, const std::string& folder, const std::string& owner) {
  for (const std::string& option : problem_option_names()) {
    if (command.count(option) > 0) {
      throw std::invalid_argument(
          fmt::format("{} with --at {}: the run of {} says which problem it is", option, folder, owner));
    }
  }
  if (owner == "clean") return clean_problem(read_stored_run(folder));
  if (owner == "tune") return tune_problem(read_stored_run(folder));
  throw std::invalid_argument(fmt::format(
      "--at {}: it is a run of `bilevel {}`, {}; diagnose reads those of solve, clean, tune and search",
      folder, owner,
      owner == "train"      ? "which trains a fixed network and has no outer problem"
      : owner == "learn"    ? "whose inner problem is another one for every task"
      : owner == "interact" ? "whose problem it cannot make again (see --problem task-interaction)"
                            : "which solves no bilevel problem"));
}

void show_search(const Options& o, const nas::SearchDiagnosis& d) {
  if (!o.common.json) {
    fmt::print("{}\n", d.sentence);
    return;
  }
  const Json out = {{"method", d.method},
                    {"K", d.terms},
                    {"curvature", d.curvature},
                    {"series_rate", number(d.series_rate)},
                    {"smallest_eigenvalue", number(d.hessian.smallest)},
                    {"largest_eigenvalue", number(d.hessian.largest)},
                    {"implicit_share", number(d.implicit_share)},
                    {"error", number(d.error)},
                    {"sentence", d.sentence},
                    {"counts", counts_json(d.counts)},
                    {"seconds", d.seconds}};
  fmt::print("{}\n", out.dump());
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

struct Diagnosed {
  Diagnosis diagnosis;
  bool learned_rate = false;
};
Diagnosed diagnose_at(const Options& o, const DiagnosedProblem& problem, DiagnoseOptions& d,
                      Progress& progress) {
  if (!o.at.empty()) take_point(o, *problem.problem, d);
  const bool learned = problem.problem->inner_rate(problem.problem->initial_outer(d.seed)).defined();
  return {diagnose(problem, d, [&](const std::string& what) { progress("diagnose: " + what); }), learned};
}

void run(CLI::App& command, Options& o) {
  const std::string owner = o.at.empty() ? "" : read_run(o.at).command;
  DiagnoseOptions& d = o.diagnose;
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  d.given = {.optimizer = given("--inner-optimizer"),
             .momentum = given("--inner-momentum"),
             .rate = given("--inner-rate"),
             .steps = given("--inner-steps")};
  d.curvature_given = given("--curvature") || given("--damping");
  d.validate();
  if (owner == "search") {
    RunContext context;
    return show_search(
        o, diagnose_search_run(read_stored_run(o.at), o.at, given("--accuracy") ? d.accuracy : 0.1, context));
  }
  std::string command_to_type = "solve", problem_text;
  Diagnosed result;
  {
    Progress progress(o.common);
    progress("diagnose: reading the problem");
    if (owner.empty() || owner == "solve") {
      if (!o.at.empty()) take_problem(command, o.at);
      o.problem.data.tensors = apply_common_options(o.common);
      d.seed = d.settings.seed = o.problem.data.seed;
      const NamedProblem problem = make_problem(command, o.problem);
      result = diagnose_at(o, diagnosed(problem), d, progress);
      collect_problem(command, problem_text);
    } else {
      const RunProblem run = problem_of_run(command, o.at, owner);
      if (given("--threads")) (void)apply_common_options(o.common);  // the run had its own
      d.seed = d.settings.seed = run.seed;
      if (!d.given.rate) {
        d.inner.rate = run.inner.rate;
        d.given.rate = run.rate_is_given;
      }
      result = diagnose_at(o, run.facts, d, progress);
      command_to_type = owner;
      problem_text = " --config " + shell_word(o.at + "/config.json");
    }
  }
  const Diagnosis& diagnosis = result.diagnosis;
  std::vector<std::string> commands;
  // It begins at the problem's start, where a run's numbers do not hold.
  if (o.at.empty() && !diagnosis.unsafe_rate) {
    commands.push_back(command_line("check", problem_text, check_options(diagnosis, result.learned_rate)));
  }
  if (!diagnosis.unsafe_rate) {
    commands.push_back(
        command_line(command_to_type, problem_text, algorithm_options(diagnosis, result.learned_rate)));
  }
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
