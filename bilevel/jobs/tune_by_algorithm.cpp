// `tune` by an algorithm: the search, and the choice between what it found and x = 0.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bilevel/algorithms/first_rate.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/data_digest.h"
#include "bilevel/jobs/solve_run.h"
#include "bilevel/jobs/tune_run.h"
#include "bilevel/problems/regularizer_search.h"
#include "bilevel/run/result_json.h"

namespace bilevel {
namespace {

constexpr int64_t first_rate_steps = 1000;
constexpr double first_step = 0.5;  // of the regulariser that moves most: exp(x) changes by a factor of 1.6

// Thrown out of a training that was interrupted: what it was for is repeated when the run is resumed.
struct TrainingInterrupted {};

// Regularisers, and the model that training with them gives.
struct TrainedRegularizers {
  Tensor x = {}, w = {};
  TuneScores scores = {};
  double valid_loss() const { return scores.at("valid_loss"); }
};

class RegularizerTraining {
 public:
  RegularizerTraining(const RegularizerSearch& problem, const AlgorithmChoice& choice,
                      const RunContext& context)
      : problem_(problem), oracle_(problem), choice_(choice), context_(context) {}

  TrainedRegularizers model(const Tensor& x, int64_t steps) {
    const Tensor w = trained(x, steps).final.w;
    return {.x = x, .w = w, .scores = problem_.metrics(w, x)};
  }
  double first_rate() {
    const Tensor x = problem_.initial_outer(choice_.solve.seed);
    const double rate = first_outer_rate(oracle_, x, trained(x, first_rate_steps), first_step);
    return rate > 0 ? rate : 1;
  }

 private:
  // From the first w.
  Trajectory trained(const Tensor& x, int64_t steps) {
    InnerLoop run;
    run.options = choice_.settings.inner;
    run.options.steps = steps;
    run.measure_gradient = false;
    run.batches = [this](int64_t) {
      if (context_.interrupted()) throw TrainingInterrupted();
      return Batch();
    };
    return run_inner(oracle_, x, problem_.initial_inner(choice_.solve.seed), run);
  }
  const RegularizerSearch& problem_;
  Oracle oracle_;
  const AlgorithmChoice& choice_;
  const RunContext& context_;
};

std::string digest_of_tuning(const RegularizerSets& sets) {
  std::vector<Tensor> contents;
  for (const LabelledRows* set : {&sets.train, &sets.valid, sets.test ? &*sets.test : nullptr}) {
    if (set == nullptr) continue;
    contents.push_back(set->labels);
    for (const Tensor& part : contents_of(set->features)) contents.push_back(part);
  }
  return data_digest(contents, {sets.train.features.features(), sets.classes});
}

SolveSummary search_in(RunContext& context, const RegularizerSearch& problem, const AlgorithmChoice& choice,
                       BestPoint& best) {
  const auto algorithm = make_algorithm(choice.algorithm, choice.settings);
  SolveRun run{.problem = problem, .algorithm = *algorithm, .options = choice.solve, .job = "tune"};
  run.learned_name = "regularisers";
  run.learned = [](const Tensor& x) { return x.exp(); };
  run.hooks = follow(best, {});
  run.put = [&best](Checkpoint& now) { put_best(now, best); };
  run.take = [&best](const Checkpoint& then) { best = take_best(then, c10::kCPU); };
  run.data = digest_of_tuning(problem.sets());
  return solve_in(context, run);
}

// Trains both models from the first w with the same number of steps: T if every iteration of the search
// starts from the first w, T per iteration otherwise. The searched model is returned only if it beats x = 0,
// that is no search at all, on the validation examples.
void choose_regularizers(const RegularizerSearch& problem, const AlgorithmChoice& choice,
                         RegularizerTraining& training, TuneJobResult& result) {
  TuneSearch& search = *result.search;
  const AlgorithmState& last = search.summary.state;
  const int64_t inner_steps = choice.settings.inner.steps;
  const int64_t turns = find_algorithm(choice.algorithm).family == Family::cold ? 1 : last.iteration;
  const int64_t steps = std::max({last.inner.step, inner_steps, turns * inner_steps});
  const TrainedRegularizers untuned = training.model(problem.initial_outer(choice.solve.seed), steps);
  TrainedRegularizers chosen;
  search.searched_loss = std::numeric_limits<double>::quiet_NaN();
  const auto consider = [&](const Tensor& x, int64_t iteration) {
    try {
      const TrainedRegularizers model = training.model(x, steps);
      if (!std::isfinite(model.valid_loss()) || search.searched_loss <= model.valid_loss()) return;
      chosen = model;
      search.searched_loss = model.valid_loss();
      search.best_iteration = iteration;
    } catch (const NotFiniteError&) {  // no candidate
    }
  };
  // The loss along the search is that of a w that may lag behind x, so both points get their training.
  consider(last.x, last.iteration);
  if (!search.best.x.equal(last.x)) consider(search.best.x, search.best.iteration);
  search.kept_untuned = !(search.searched_loss < untuned.valid_loss());
  if (search.kept_untuned) chosen = untuned;
  result.x = chosen.x;
  result.model = problem.layout().matrix(chosen.w);
  result.order = by_regularizer(result.x);
  result.scores = chosen.scores;
  result.baseline = untuned.scores;
}

// Only the summary where it was interrupted or ended badly.
void search_regularizers(const RegularizerSearch& problem, AlgorithmChoice& choice, RunContext& context,
                         TuneJobResult& result) {
  TuneSearch& search = result.search.emplace();
  search.inner_rate = problem.rate();
  search.largest_x = problem.largest_outer();
  search.settings = choice.settings;
  search.summary.algorithm = choice.algorithm;
  RegularizerTraining training(problem, choice, context);
  try {
    context.progress("tune: the outer rate");
    if (choice.settings.outer.rate == 0) choice.settings.outer.rate = training.first_rate();
    choice.solve.settings = search.settings = choice.settings;
    search.summary = search_in(context, problem, choice, search.best);
    if (!has_answer(search.summary)) return;
    context.progress("tune: the models");
    choose_regularizers(problem, choice, training, result);
  } catch (const TrainingInterrupted&) {
    search.summary.reason = StopReason::interrupted;
  }
}

std::string kept_untuned_text(const TuneJobResult& result) {
  const TuneSearch& search = *result.search;
  return fmt::format(
      "The search did not beat x = 0 on the validation examples: its best regularisers (iteration {}) give a "
      "loss of {}, x = 0 gives {:.4f}. The untuned model is returned. Take features of similar scales, a "
      "lower {} or more {}.",
      search.best_iteration,
      std::isfinite(search.searched_loss) ? fmt::format("{:.4f}", search.searched_loss)
                                          : std::string("a value that is not finite"),
      result.baseline.at("valid_loss"), named("outer_rate"), named("inner_steps"));
}

Json tuned_json(const TuneJobResult& result, const Json& choice) {
  const TuneSearch& search = *result.search;
  Json out = {{"features", result.feature_names.size()},
              {"nonzeros", result.nonzeros},
              {"classes", result.class_names.size()},
              {"class_names", result.class_names},
              {"train_examples", result.train_examples},
              {"valid_examples", result.valid_examples},
              {"test_examples", result.test_examples},
              {"inner_rate", search.inner_rate},
              {"outer_rate", search.settings.outer.rate},
              {"outer_optimizer", search.settings.outer.optimizer},
              {"largest_x", search.largest_x}};
  for (const char* set : {"test", "valid", "train"}) {
    for (const char* what : {"accuracy", "loss"}) {
      const std::string key = fmt::format("{}_{}", set, what);
      const auto value = [&](const TuneScores& from) {
        return from.contains(key) ? number(from.at(key)) : Json(nullptr);
      };
      out[key] = value(result.scores);
      out["baseline_" + key] = value(result.baseline);
    }
  }
  out["returned"] = search.kept_untuned ? "untuned" : "tuned";
  out["best_iteration"] = search.best_iteration;
  out["searched_valid_loss"] = number(search.searched_loss);
  add_features(result, static_cast<size_t>(result.top), out);
  out.update(solve_json(search.summary));
  add_choice(choice, out);
  if (!result.folder.empty()) out["folder"] = result.folder;
  return out;
}

DiagnosedProblem tuning_facts(const RegularizerSearch& problem, const AlgorithmChoice& choice) {
  return {.problem = &problem,
          .name = "tune",
          .inner_steps = choice.settings.inner.steps,
          .inner_rate = problem.rate(),
          .convex = true,
          .largest_curvature = problem.largest_curvature()};
}

// Everything that decides the search, from the options and the problem.
void complete_tune_options(TuneJobOptions& o, const RegularizerSearch& problem, RunContext& context) {
  AlgorithmChoice& choice = o.algorithm;
  choice.settings.inner.rate = problem.rate();
  if (wants_auto(choice)) {
    // x is bounded so that plain steps at this rate stay safe: it is not up for choice.
    choose_method(OptionsView(o), o.given, tuning_facts(problem, choice), choice, o.automatic, context,
                  choice.settings.inner, true);
  }
  refuse_ignored(OptionsView(o), choice, {choice.algorithm}, !automatic_choice(context).is_null());
  finish(choice);
  // Options that cannot be are refused before there is a run.
  choice.solve.validate();
  AlgorithmSettings settings = choice.settings;
  if (settings.outer.rate == 0) settings.outer.rate = 1;
  (void)make_algorithm(choice.algorithm, settings);
}

}  // namespace

void tune_by_algorithm(TuneJobOptions& o, RegularizerSets sets, RunContext& context, TuneJobResult& result) {
  set_tune_defaults(o);
  const RegularizerSearch problem(std::move(sets), o.algorithm.settings.inner.rate);
  complete_tune_options(o, problem, context);
  const RegularizerSets& of = problem.sets();
  result.by = tune_ways().algorithm;
  result.train_examples = of.train.size();
  result.valid_examples = of.valid.size();
  result.test_examples = of.test ? of.test->size() : 0;
  result.nonzeros = of.nonzeros;
  result.class_names = of.class_names;
  result.feature_names = of.feature_names;
  result.top = o.top;
  context.open("tune", o.algorithm.solve.seed, OptionsView(o));
  result.folder = context.folder_name();
  context.work([&] {
    search_regularizers(problem, o.algorithm, context, result);
    const TuneSearch& search = *result.search;
    result.seconds = search.summary.seconds;
    result.end = end_of(search.summary);
    if (!has_answer(search.summary)) {
      result.json = solve_json(search.summary);
      if (!result.folder.empty()) result.json["folder"] = result.folder;
      context.end(result.end.status, result.end.message, result.json);
      return;
    }
    result.json = tuned_json(result, automatic_choice(context));
    add_communication(context, result.json);
    measure_choice_at_end(o.automatic, problem, o.algorithm.settings, search.summary, context, result.json);
    if (search.kept_untuned) context.warning(kept_untuned_text(result));
    if (context.has_folder()) write_files(result.end, [&] { result.files = write_tune_files(result); });
    context.end(result.end.status, result.end.message, result.json);
  });
}

RunProblem tune_problem(const StoredRun& stored) {
  TuneJobOptions o;
  give_rest(OptionsView(o), stored.given);
  check_tune_sources(o);
  if (wants_table(o, o.given(o.files.valid.features)) &&
      !std::filesystem::exists(stored.folder + "/checkpoint")) {
    throw OptionError(
        fmt::format("{}: a run of `bilevel tune --by held-out` solves its problems to the end and keeps no "
                    "point to diagnose; start one with {}",
                    stored.folder, named("by", tune_ways().algorithm)));
  }
  set_tune_defaults(o);
  (void)apply(o.compute, RunContext());
  RegularizerSets sets = o.data.empty() ? divided(read_tune_tables(o), o.files.valid_part,
                                                  o.algorithm.solve.seed, o.files.train.features)
                                        : read_tune_newsgroups(o);
  const auto problem = std::make_shared<RegularizerSearch>(std::move(sets), o.algorithm.settings.inner.rate);
  InnerOptions inner;
  inner.rate = problem->rate();
  return {.owner = problem,
          .facts = tuning_facts(*problem, o.algorithm),
          .inner = inner,
          .rate_is_given = true,
          .seed = o.algorithm.solve.seed};
}

}  // namespace bilevel
