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

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/diagnose_output.h"
#include "cli/problem_options.h"
#include "cli/progress.h"

namespace bilevel::cli {
namespace {

struct Options {
  CommonOptions common;
  ProblemFlags problem;
  DiagnoseOptions diagnose;
};

void add_options(CLI::App& command, Options& o) {
  DiagnoseOptions& d = o.diagnose;
  add_problem_options(command, o.problem);
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

std::string shell_word(const std::string& value) {
  const bool plain =
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
      std::string::npos;
  return plain && !value.empty() ? value : "'" + value + "'";
}

// The options that say which problem it is, as they were given.
void collect_problem(const CLI::App& app, std::string& text) {
  static const std::set<std::string> others = {
      "--help",      "--accuracy",    "--terms",      "--truncate",        "--calls",
      "--patience",  "--inner-steps", "--inner-rate", "--inner-optimizer", "--inner-momentum",
      "--curvature", "--damping",     "--json",       "--quiet",           "--threads",
      "--at"};
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || option->results().empty() || others.count(name) > 0) continue;
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
    learned_rate = problem.problem->inner_rate(problem.problem->initial_outer(d.seed)).defined();
    diagnosis =
        diagnose(diagnosed(problem), d, [&](const std::string& what) { progress("diagnose: " + what); });
  }
  std::string problem_text;
  collect_problem(command, problem_text);
  const std::vector<std::string> commands = {
      command_line("check", problem_text, check_options(diagnosis, learned_rate)),
      command_line("solve", problem_text, algorithm_options(diagnosis, learned_rate))};
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
      "  bilevel diagnose --problem mlp --json");
  const auto options = std::make_shared<Options>();
  add_options(*command, *options);
  command->callback([command, options] { run(*command, *options); });
}

}  // namespace bilevel::cli
