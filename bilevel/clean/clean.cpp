#include "bilevel/clean/clean.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/problems/softmax_loss.h"

namespace bilevel {
namespace {

constexpr double weight_one = 30;          // sigmoid(30) = 1 - 1e-13
constexpr int64_t steps_at_a_time = 100;   // of final training, between looks at the gradient
constexpr int64_t spectrum_products = 40;  // the largest eigenvalue alone is found well before
constexpr double unsolved_above = 0.1;     // of the first gradient norm

Tensor first_inner(const Problem& problem, uint64_t seed) {
  return problem.initial_inner(named_seed(seed, "inner start"));  // where solve() starts too
}

double gradient_norm(Oracle& oracle, const Tensor& w, const Tensor& x) {
  return oracle.inner_gradient(w, x, {}).norm().item<double>();
}

double accuracy(const CleaningModel& model, const Tensor& w, const ExampleSet& set) {
  return set.size() == 0 ? -1 : accuracy_percent(model.scores(w, set), set.labels);
}

// Nothing where `goes_on` says false.
std::optional<TrainedModel> train(const CleaningSets& sets, const CleaningModel& model,
                                  const CleanOptions& options, const Tensor& x,
                                  const std::function<bool(int64_t)>& goes_on, OracleCounts& counts) {
  Oracle oracle(*model.problem);
  const uint64_t seed = options.solve.seed;
  const bool full = options.final_batch == 0 || options.final_batch >= sets.train.size();
  BatchStream batches(seed, "final training", sets.train.size(), {.size = full ? 0 : options.final_batch});
  InnerLoop run;
  run.options.optimizer = "nesterov";
  run.options.rate = options.final_rate > 0 ? options.final_rate : options.settings.inner.rate;
  run.batches = [&batches](int64_t) { return batches.next(); };
  run.measure_gradient = false;

  TrainedModel result;
  InnerState state = make_inner_optimizer(run.options)->start(first_inner(*model.problem, seed));
  const double start = gradient_norm(oracle, state.w, x);
  result.gradient_norm = start;
  while (result.steps < options.final_steps && result.gradient_norm > options.final_tolerance * start) {
    run.options.steps = std::min(steps_at_a_time, options.final_steps - result.steps);
    state = continue_inner(oracle, x, state, run).final;
    result.steps += run.options.steps;
    if (full) result.gradient_norm = gradient_norm(oracle, state.w, x);
    if (!goes_on(result.steps)) return std::nullopt;
  }
  if (!full) result.gradient_norm = gradient_norm(oracle, state.w, x);
  result.w = state.w;
  result.valid_loss = oracle.outer_loss(state.w, x).item<double>();
  result.valid_accuracy = accuracy(model, state.w, sets.valid);
  result.test_accuracy = accuracy(model, state.w, sets.test);
  counts += oracle.counts();
  return result;
}

void find_suspects(const CleaningSets& sets, const CleanOptions& options, CleanResult& result) {
  const Tensor x = result.x;
  const Tensor flagged = x.lt(options.threshold);
  result.flagged = flagged.sum().item<int64_t>();
  const Tensor order = std::get<1>(x.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  const int64_t listed =
      options.most_suspects > 0 ? std::min(options.most_suspects, result.flagged) : result.flagged;
  for (int64_t i = 0; i < listed; ++i) result.suspects.push_back(order[i].item<int64_t>());
  if (sets.wrong.defined()) result.wrong = detect(flagged, sets.wrong);
  if (sets.replaced.defined()) result.replaced = detect(flagged, sets.replaced);
}

void add_warnings(const CleaningModel& model, const CleanOptions& options, CleanResult& result) {
  if (result.kept_baseline) {
    result.warnings.push_back(fmt::format(
        "the learned weights do not beat all labels alike on the validation set: a loss of {:.4f} "
        "against {:.4f}. All weights are left at 1 and no example is suspect; try more "
        "--iterations, more --inner-steps or another --outer-rate",
        result.learned_valid_loss, result.baseline.valid_loss));
  }
  const double share = result.inner_gradient_norm / result.first_gradient_norm;
  if (model.convex && share > unsolved_above) {  // a network on batches is never solved
    result.warnings.push_back(fmt::format(
        "the inner problem is far from solved: |grad_w g| is {:.2g} after the inner loop, {:.0f} % of the "
        "start's; take more --inner-steps, a higher --inner-rate or a momentum",
        result.inner_gradient_norm, 100 * share));
  }
  if (result.flagged == 0 && !result.kept_baseline) {
    result.warnings.push_back(fmt::format(
        "no example is below the threshold of {}: the smallest x is {:.3g}; take more --iterations "
        "or a higher --outer-rate, or move --threshold",
        options.threshold, result.x.min().item<double>()));
  }
  if (2 * result.flagged > result.x.numel()) {
    result.warnings.push_back(fmt::format(
        "more than half of the training examples are flagged, {} of {}: is the validation set from the same "
        "source, and are its labels right?",
        result.flagged, result.x.numel()));
  }
}

}  // namespace

void CleanOptions::validate(int64_t examples) const {
  if (!std::isfinite(threshold)) {
    throw std::invalid_argument(fmt::format("threshold = {}: must be finite", threshold));
  }
  if (most_suspects < 0 || most_suspects > examples) {
    throw std::invalid_argument(
        fmt::format("suspects = {}: must be 0 (no limit) to {}, the number of training "
                    "examples",
                    most_suspects, examples));
  }
  for (const auto& [option, value] :
       {std::pair{"final_steps", final_steps}, std::pair{"final_batch", final_batch}}) {
    require_at_least(option, value, 0);
  }
  require_nonnegative("final_tolerance", final_tolerance);
}

CleanOptions default_clean_options(const CleaningModel& model) {
  CleanOptions options;
  options.settings.hypergradient.truncate = 5;
  options.settings.outer.optimizer = "adam";
  options.settings.outer.rate = 0.2;  // x passes -3 after 15 steps in one direction
  options.solve.iterations = 100;
  options.settings.inner.steps = 100;
  options.settings.inner.optimizer = "nesterov";
  if (!model.convex) {
    // A network is not trained anew for every step of x: a few more steps from where it stands, all of them
    // in the hypergradient, which then reaches the examples of all their batches.
    options.algorithm = "double-loop";
    options.settings.method = "truncated";
    options.settings.inner.steps = 5;
    options.settings.inner.rate = 0.02;
    options.solve.iterations = 200;
    options.solve.batches = {.inner_batch = 256, .outer_batch = 256};
    options.final_steps = 1000;
    options.final_batch = 256;
  }
  return options;
}

double start_curvature(const Problem& problem, uint64_t seed) {
  Oracle oracle(problem);
  const Tensor w = first_inner(problem, seed);
  const Tensor x = at::full_like(problem.initial_outer(seed), weight_one);
  const auto at_start = oracle.linearize(w, x, {});
  SpectrumOptions options;
  options.max_products = spectrum_products;
  options.relative_tolerance = 1e-3;
  const Spectrum spectrum = extreme_eigenvalues([&](const Tensor& v) { return at_start->hessian(v); },
                                                w.numel(), w.options(), options);
  return spectrum.largest;
}

double Detection::precision() const {
  return flagged > 0 ? static_cast<double>(both) / static_cast<double>(flagged) : 0;
}
double Detection::recall() const {
  return bad > 0 ? static_cast<double>(both) / static_cast<double>(bad) : 0;
}
double Detection::f1() const {
  return flagged + bad > 0 ? 2 * static_cast<double>(both) / static_cast<double>(flagged + bad) : 0;
}

Detection detect(const Tensor& flagged, const Tensor& bad) {
  return {.flagged = flagged.sum().item<int64_t>(),
          .bad = bad.sum().item<int64_t>(),
          .both = flagged.logical_and(bad).sum().item<int64_t>()};
}

CleanResult clean(const CleaningSets& sets, const CleaningModel& model, const CleanOptions& options,
                  const CleanHooks& hooks) {
  options.validate(sets.train.size());
  const Problem& problem = *model.problem;
  const auto algorithm = make_algorithm(options.algorithm, options.settings);
  const auto say = [&](const std::string& what) {
    if (hooks.progress) hooks.progress(what);
  };
  CleanResult result;
  SolveOptions solve_options = options.solve;
  solve_options.settings = options.settings;
  BestPoint best;
  const SolveHooks along = follow(best, {.record = [&](const SolveRecord& r, const AlgorithmState&) {
                                    say(fmt::format("iteration {} of {}, validation loss {:.4f}", r.iteration,
                                                    options.solve.iterations, r.outer_loss));
                                    return true;
                                  }});
  result.solve = hooks.solve ? hooks.solve(problem, *algorithm, solve_options, along, best)
                             : solve(problem, *algorithm, solve_options, along);
  if (ended_badly(result.solve.reason) || result.solve.reason == StopReason::interrupted) return result;
  Oracle oracle(problem);
  const Tensor x = result.solve.state.x;
  result.inner_gradient_norm = gradient_norm(oracle, result.solve.inner_solution, x);
  result.first_gradient_norm = gradient_norm(oracle, first_inner(problem, options.solve.seed), x);

  result.counts = result.solve.counts;
  const auto trained = [&](const Tensor& weights, const char* on_what) {
    return train(
        sets, model, options, weights,
        [&](int64_t steps) {
          say(fmt::format("training on {}: {} steps", on_what, steps));
          return !hooks.interrupted || !hooks.interrupted();
        },
        result.counts);
  };
  // The loss along the run is that of a w that may lag behind x, so both points get their training.
  auto cleaned = trained(x, "the learned weights");
  Tensor returned = x;
  result.best_iteration = result.solve.state.iteration;
  if (cleaned && best.x.defined() && !best.x.equal(x)) {
    const auto at_best = trained(best.x, "the best weights");
    if (!at_best) {
      cleaned = std::nullopt;
    } else if (!(cleaned->valid_loss <= at_best->valid_loss)) {
      cleaned = at_best;
      returned = best.x;
      result.best_iteration = best.iteration;
    }
  }
  const auto baseline = cleaned ? trained(at::full_like(x, weight_one), "all labels alike") : std::nullopt;
  if (!baseline) {
    result.solve.reason = StopReason::interrupted;
    return result;
  }
  result.cleaned = *cleaned;
  result.baseline = *baseline;
  result.learned_valid_loss = cleaned->valid_loss;
  result.kept_baseline = !(cleaned->valid_loss < baseline->valid_loss);
  if (result.kept_baseline) {
    result.cleaned = result.baseline;
    returned = at::full_like(x, weight_one);
  }

  result.x = returned.to(at::kCPU);
  result.weights = result.x.sigmoid();
  result.suggested = model.scores(result.cleaned.w, sets.train).argmax(1);
  find_suspects(sets, options, result);
  add_warnings(model, options, result);
  result.finished = true;
  return result;
}

}  // namespace bilevel
