#include "bilevel/jobs/automatic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "bilevel/check/diagnose.h"
#include "bilevel/check/references.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/jobs/recommended_options.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/run/run_context.h"

namespace bilevel {

const Fields<AutomaticOptions>& AutomaticOptions::fields() {
  static const Fields<AutomaticOptions> table = [] {
    Fields<AutomaticOptions> f;
    f.heading("algorithm");
    f.add(
         "accuracy", [](auto& o) -> auto& { return o.accuracy; },
         fmt::format("target relative error of a hypergradient, for the method auto"))
        .in(between_0_and_1());
    return f;
  }();
  return table;
}

Json automatic_choice(const RunContext& context) {
  const Json notes = context.notes();
  return notes.contains("auto") ? notes["auto"] : Json(nullptr);
}

void refuse_ignored_accuracy(const Given& given, const AutomaticOptions& automatic, const Json& choice,
                             bool wants_auto) {
  if (!given(automatic.accuracy) || wants_auto || !choice.is_null()) return;
  throw OptionError(no_effect(named("accuracy", word_of(automatic.accuracy)), "", {named("method", "auto")}));
}

void choose_method(OptionsView options, const Given& given, const DiagnosedProblem& problem,
                   const AlgorithmChoice& algorithm, const AutomaticOptions& automatic, RunContext& context,
                   const InnerOptions& inner, bool rate_is_given) {
  const AlgorithmSettings& s = algorithm.settings;
  const std::string automatically = named("method", "auto");
  if (context.has_other_ranks()) {  // it compares times, which no two ranks find alike
    throw OptionError(
        fmt::format("{} with {} ranks: let `bilevel diagnose` choose in one process, and name what it found",
                    automatically, context.group()->size()));
  }
  if (given(algorithm.algorithm) && algorithm.algorithm != "double-loop") {
    throw OptionError(fmt::format("{} with {}: it chooses the hypergradient of double-loop; leave {} out",
                                  automatically, named("algorithm", algorithm.algorithm),
                                  named("algorithm")));
  }
  for (const auto& [field, is_given] : {std::pair{"terms", given(s.hypergradient.terms)},
                                        std::pair{"truncate", given(s.hypergradient.truncate)}}) {
    if (is_given) {
      throw OptionError(fmt::format("{} with {}, which chooses it: leave it out, or name the method",
                                    named(field), automatically));
    }
  }
  DiagnoseOptions diagnose_options;
  diagnose_options.accuracy = automatic.accuracy;
  diagnose_options.inner = inner;
  diagnose_options.given = {.optimizer = given(s.inner.optimizer),
                            .momentum = given(s.inner.momentum),
                            .rate = rate_is_given,
                            .steps = given(s.inner.steps)};
  diagnose_options.settings.curvature = s.hypergradient.curvature;
  diagnose_options.curvature_given =
      given(s.hypergradient.curvature.kind) || given(s.hypergradient.curvature.damping);
  diagnose_options.seed = algorithm.solve.seed;
  const Diagnosis diagnosis = diagnose(
      problem, diagnose_options, [&](const std::string& what) { context.progress("diagnose: " + what); });
  if (diagnosis.unsafe_rate) {
    throw OptionError(fmt::format("{}: {}", automatically, diagnosis.recommendation.sentence));
  }
  const bool learned_rate =
      problem.problem->inner_rate(problem.problem->initial_outer(diagnose_options.seed)).defined();
  Json choice = recommendation_json(diagnosis.recommendation);
  choice["accuracy"] = automatic.accuracy;
  choice["diagnosis_seconds"] = diagnosis.seconds;
  choice["against_exact"] = diagnosis.reference == ReferenceKind::solution;
  choice["options"] = Json::object();
  for (const auto& [name, words] : recommended_algorithm_options(diagnosis, learned_rate)) {
    choice["options"][name] = words.front();
    options.give(options.at(name), words);
  }
  context.note("auto", choice);
  context.line("auto: " + diagnosis.recommendation.sentence);
}

void add_choice(const Json& choice, Json& summary) {
  if (choice.is_null()) return;
  summary["method"] = choice.at("method");
  summary["auto"] = choice;
}

void measure_choice_at_end(const AutomaticOptions& automatic, const Problem& problem,
                           const AlgorithmSettings& settings, const SolveSummary& run,
                           const RunContext& context, Json& summary) {
  if (!summary.contains("auto") || !summary["auto"].value("against_exact", false)) return;
  if (!has_answer(run)) return;
  const AlgorithmState& end = run.state;
  Oracle oracle(problem);
  const InnerSolveOptions limits{.iterations = 100, .products = 32 * DiagnoseOptions{}.calls_per_method};
  const ImplicitReference exact = implicit_reference(oracle, end.x, end.inner.w, {}, limits);
  if (!exact.value.defined()) return;
  EstimatorSettings hypergradient = settings.hypergradient;
  if (hypergradient.linear_rate == 0) hypergradient.linear_rate = settings.linear_rate;
  const auto estimator = make_estimator(settings.method, hypergradient);
  // As the next iteration would: w and the linear system go on where they are.
  InnerLoop next;
  next.options = settings.inner;
  next.keep = estimator->keeps(next.options.steps, end.inner.bytes());
  Trajectory inner = continue_inner(oracle, end.x, end.inner, next);
  HypergradientRequest request{.x = end.x, .inner = inner};
  request.warm_start = end.v;
  const Tensor value = estimator->estimate(oracle, request).value;
  const double scale = exact.value.norm().item<double>();
  const double error = (value - exact.value).norm().item<double>() / (scale > 0 ? scale : 1);
  summary["auto"]["error_at_end"] = number(error);
  if (error <= automatic.accuracy) return;
  const std::string warning = fmt::format(
      "{}: the error of {} has grown to {:.2g} of the hypergradient where the run ended, above the target "
      "{:g}; it was chosen at the start of the run: `bilevel diagnose --at` shows what is needed at the end",
      named("method", "auto"), settings.method, error, automatic.accuracy);
  summary["warnings"].push_back(plain_text(warning));
  context.warning(warning);
}

}  // namespace bilevel
