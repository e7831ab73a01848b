#include "cli/auto_method.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/check/diagnose.h"
#include "bilevel/check/references.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/run/json_value.h"
#include "cli/diagnose_output.h"
#include "cli/run_options.h"
#include "cli/solve_run.h"

namespace bilevel::cli {

void add_auto_options(CLI::App& command, AutoFlags& f) {
  command.add_option("--accuracy", f.accuracy, "of --method auto: wished relative error of a hypergradient")
      ->capture_default_str();
  command.add_option("--auto-choice", f.choice, "")->group("");  // written to config.json, for --resume
}

void refuse_ignored_accuracy(const CLI::App& command, const AutoFlags& flags, bool wants_auto) {
  if (command.count("--accuracy") == 0 || wants_auto || !flags.choice.empty()) return;
  throw std::invalid_argument(
      fmt::format("--accuracy {} changes nothing without --method auto, which chooses by it; leave it out",
                  flags.accuracy));
}

bool wants_auto(const AlgorithmFlags& flags) { return flags.settings.method == "auto"; }

void choose_method(CLI::App& command, const DiagnosedProblem& problem, AlgorithmFlags& algorithm,
                   AutoFlags& flags, Progress& progress, const InnerOptions& inner, bool rate_is_given) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  if (given("--algorithm") && algorithm.algorithm != "double-loop") {
    throw std::invalid_argument(
        fmt::format("--method auto with --algorithm {}: it chooses the hypergradient of double-loop; leave "
                    "--algorithm out",
                    algorithm.algorithm));
  }
  for (const char* option : {"--terms", "--truncate"}) {
    if (given(option)) {
      throw std::invalid_argument(
          fmt::format("{} with --method auto, which chooses it: leave it out, or name the method", option));
    }
  }
  DiagnoseOptions options;
  options.accuracy = flags.accuracy;
  options.inner = inner;
  options.given = {.optimizer = given("--inner-optimizer"),
                   .momentum = given("--inner-momentum"),
                   .rate = rate_is_given,
                   .steps = given("--inner-steps")};
  options.settings.curvature = algorithm.settings.hypergradient.curvature;
  options.settings.curvature.kind = algorithm.curvature;
  options.curvature_given = given("--curvature") || given("--damping");
  options.seed = algorithm.solve.seed;
  const Diagnosis diagnosis =
      diagnose(problem, options, [&](const std::string& what) { progress("diagnose: " + what); });
  if (diagnosis.unsafe_rate) {
    throw std::invalid_argument("--method auto: " + diagnosis.recommendation.sentence);
  }
  const bool learned_rate =
      problem.problem->inner_rate(problem.problem->initial_outer(options.seed)).defined();
  Json choice = recommendation_json(diagnosis.recommendation);
  choice["accuracy"] = flags.accuracy;
  choice["diagnosis_seconds"] = diagnosis.seconds;
  choice["against_exact"] = diagnosis.reference == ReferenceKind::solution;
  choice["options"] = Json::object();
  for (const auto& [name, value] : algorithm_options(diagnosis, learned_rate)) {
    choice["options"][name] = value;
    set_option(command, name, value);
  }
  set_option(command, "--auto-choice", choice.dump());
  progress.line("auto: " + diagnosis.recommendation.sentence);
}

void add_choice(const AutoFlags& flags, Json& summary) {
  if (flags.choice.empty()) return;
  Json choice;
  try {
    choice = parse_bounded<Json>(flags.choice);
  } catch (const std::exception&) {  // it stays null
  }
  if (!choice.contains("method")) {
    throw std::invalid_argument("--auto-choice: it is written by --method auto and cannot be given");
  }
  summary["method"] = choice.at("method");
  summary["auto"] = std::move(choice);
}

void measure_choice_at_end(const AutoFlags& flags, const Problem& problem, const AlgorithmSettings& settings,
                           const SolveSummary& run, const CommonOptions& common, Json& summary) {
  if (flags.choice.empty() || !summary.at("auto").value("against_exact", false)) return;
  if (!has_answer(run)) return;
  const AlgorithmState& end = run.state;
  Oracle oracle(problem);
  const InnerSolveOptions limits{.iterations = 100, .products = 32 * DiagnoseOptions{}.calls_per_method};
  const ImplicitReference exact = implicit_reference(oracle, end.x, end.inner.w, {}, limits);
  if (!exact.value.defined()) return;
  EstimatorSettings hypergradient = settings.hypergradient;
  if (hypergradient.series_rate == 0) hypergradient.series_rate = settings.linear_rate;
  const auto estimator = make_estimator(settings.method, hypergradient);
  // As the next iteration would: w and the linear system go on where they are.
  InnerRun next;
  next.options = settings.inner;
  next.keep = estimator->keeps(next.options.steps, end.inner.bytes());
  Trajectory inner = continue_inner(oracle, end.x, end.inner, next);
  HypergradientRequest request{.x = end.x, .inner = inner};
  request.warm_start = end.v;
  const Tensor value = estimator->estimate(oracle, request).value;
  const double scale = exact.value.norm().item<double>();
  const double error = (value - exact.value).norm().item<double>() / (scale > 0 ? scale : 1);
  summary["auto"]["error_at_end"] = number(error);
  if (error <= flags.accuracy) return;
  const std::string warning = fmt::format(
      "--method auto: the error of {} has grown to {:.2g} of the hypergradient where the run ended, above "
      "the "
      "wished {:g}; it was chosen for where the run began: `bilevel diagnose --at` says what is needed there",
      settings.method, error, flags.accuracy);
  summary["warnings"].push_back(warning);
  if (says(common, LogLevel::warning)) fmt::print(stderr, "warning: {}\n", warning);
}

}  // namespace bilevel::cli
