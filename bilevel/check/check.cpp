#include "bilevel/check/check.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "bilevel/check/bounds.h"
#include "bilevel/check/method.h"
#include "bilevel/check/verdict.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/require.h"
#include "bilevel/hypergradients/bound.h"

namespace bilevel {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
// Where K is not given. Where it matters, MINRES is on an indefinite matrix and gets nowhere.
constexpr int64_t most_cg_steps = 3000, most_minres_steps = 1000;

double relative_error(const Tensor& value, const Tensor& reference) {
  if (!value.defined() || !reference.defined()) return none;
  const double scale = reference.norm().item<double>();
  const double error = (value - reference).norm().item<double>();
  return scale > 0 ? error / scale : error;
}

double cosine(const Tensor& value, const Tensor& reference) {
  if (!value.defined() || !reference.defined()) return none;
  const double scale = value.norm().item<double>() * reference.norm().item<double>();
  return scale > 0 ? value.dot(reference).item<double>() / scale : none;
}

class Checker {
 public:
  Checker(const Problem& problem, const CheckOptions& options,
          const std::function<void(const std::string&)>& progress)
      : problem_(problem), options_(options), progress_(progress), oracle_(problem) {
    options_.validate();
    methods_ = all_methods(by_name() ? options_.methods : registry_names(), options_.own);
  }

  CheckResult run() {
    start_ = problem_.initial_inner(options_.seed);
    x_ = problem_.initial_outer(options_.seed);
    result_.problem = options_.problem;
    result_.inner_size = start_.numel();
    result_.outer_size = x_.numel();
    result_.inner = options_.inner;
    result_.trust_below = start_.scalar_type() == at::kDouble ? 1e-6 : 1e-3;
    optimizer_ = make_inner_optimizer(options_.inner);

    check_rate_at_start();
    run_inner_loop();
    measure_spectrum();
    find_references();
    for (const Method& method : methods_) result_.methods.push_back(run_method(method));
    if (options_.sweep) run_sweep();
    judge(result_);
    return std::move(result_);
  }

 private:
  bool by_name() const { return !options_.methods.empty(); }

  void say(const std::string& what) const {
    if (progress_) progress_(what);
  }

  Tensor first_iterate() const {
    const Tensor learned = problem_.inner_start(x_);
    return learned.defined() ? learned.detach() : start_;
  }

  Spectrum spectrum_at(const Tensor& w) {
    HypergradientRequest request{.x = x_, .inner = at_point_};
    at_point_.optimizer = optimizer_;
    at_point_.final = optimizer_->start(w);
    CurvatureProducts products(oracle_, request, options_.settings.curvature);
    return extreme_eigenvalues(products.matrix(), w.numel(), w.options());
  }

  double safe_rate_at_start() {
    say("spectrum at the start");
    return optimizer_->largest_safe_rate(spectrum_at(first_iterate()).largest);
  }

  // Where the curvature is the same everywhere, a rate above the limit diverges for certain: refuse at once.
  void check_rate_at_start() {
    if (!options_.constant_curvature || oracle_.inner_rate(x_).defined()) return;
    say("spectrum at the start");
    const Spectrum spectrum = spectrum_at(first_iterate());
    const double safe_rate = optimizer_->largest_safe_rate(spectrum.largest);
    if (options_.inner.rate >= safe_rate) {
      throw std::invalid_argument(
          fmt::format("--inner-rate {:g}: the inner loop diverges. The inner Hessian's largest eigenvalue is "
                      "{:.6g}, so the largest safe rate of {} is {:.6g}; half of it is a good choice.",
                      options_.inner.rate, spectrum.largest, optimizer_->name(), safe_rate));
    }
  }

  // A bound is on the distance from the exact hypergradient, so that it belongs beside no other reference.
  // Without positive curvature there is none, and finding that out again for every estimator takes long.
  bool with_bound() const {
    const CurvatureOptions& curvature = options_.settings.curvature;
    return !options_.reference_at_iterate && curvature.kind == "hessian" && curvature.damping == 0 &&
           std::isfinite(result_.spectrum.condition_number());
  }

  // One trajectory serves all estimators: it keeps what any of them reads. A sweep of K reads all states.
  std::vector<int64_t> kept_states() const {
    const int64_t steps = options_.inner.steps;
    std::set<int64_t> states;
    for (int64_t t = 0; options_.sweep && t < steps; ++t) states.insert(t);
    for (const Method& method : methods_) {
      const auto own = method.make(settings_for(method))->keeps(steps, state_bytes());
      states.insert(own.begin(), own.end());
    }
    return {states.begin(), states.end()};
  }

  int64_t state_bytes() const {
    return static_cast<int64_t>(start_.nbytes()) * (1 + optimizer_->buffer_count());
  }

  void run_inner_loop() {
    say(fmt::format("inner loop, {} steps", options_.inner.steps));
    const auto begin = std::chrono::steady_clock::now();
    InnerLoop run;
    run.options = options_.inner;
    run.keep = kept_states();
    try {
      final_ = run_inner(oracle_, x_, start_, run);
    } catch (const NotFiniteError& error) {
      throw NotFiniteError(fmt::format("{} The largest safe rate, from the spectrum at the start, is {:.6g}.",
                                       error.what(), safe_rate_at_start()));
    }
    result_.inner_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result_.inner_counts = final_.counts;
    result_.inner_gradient_norm = final_.gradient_norm;
    result_.inner_rate = final_.last_rate();
    result_.initial_gradient_norm =
        oracle_.inner_gradient(first_iterate(), x_, Batch{}).norm().item<double>();
  }

  void measure_spectrum() {
    say("spectrum at the final iterate");
    result_.spectrum = spectrum_at(final_.final.w);
    result_.largest_safe_rate = optimizer_->largest_safe_rate(result_.spectrum.largest);
    result_.contraction =
        options_.inner.optimizer == "gd" ? result_.spectrum.contraction(result_.inner_rate) : none;
    const double largest = std::max(std::abs(result_.spectrum.largest), std::abs(result_.spectrum.smallest));
    if (options_.linear_rate_auto && largest > 0 && std::isfinite(largest)) {
      options_.settings.linear_rate = 1 / largest;
    }
    const double given = options_.settings.linear_rate;
    result_.curvature = options_.settings.curvature;
    result_.linear_rate = given > 0 ? given : result_.inner_rate;
    result_.series_contraction = result_.spectrum.contraction(result_.linear_rate);
    // Finite, but on its way out: the numbers below would describe nothing.
    if (result_.inner_rate >= result_.largest_safe_rate &&
        result_.inner_gradient_norm > 10 * result_.initial_gradient_norm) {
      throw NotFiniteError(
          fmt::format("the inner loop diverges at rate {:g}: |grad_w g| grew from {:.3g} to {:.3g} in {} "
                      "steps. The largest safe "
                      "rate is {:.6g} at the start and {:.6g} at the final iterate.",
                      result_.inner_rate, result_.initial_gradient_norm, result_.inner_gradient_norm,
                      options_.inner.steps, safe_rate_at_start(), result_.largest_safe_rate));
    }
  }

  void find_references() {
    if (options_.reference_at_iterate) {
      say("implicit reference: the curvature at the final iterate");
      result_.implicit = implicit_reference_at(oracle_, x_, final_.final.w, options_.settings.curvature);
    } else {
      say("implicit reference: solving the inner problem by Newton's method");
      result_.implicit = implicit_reference(oracle_, x_, final_.final.w, options_.settings.curvature);
    }
    if (!wants_unrolled()) {
      result_.unrolled.why = "only implicit estimators were requested, and the graph of all steps is large";
      return;
    }
    say("unrolled reference: automatic differentiation through the unrolled graph");
    result_.unrolled = unrolled_reference(problem_, x_, start_, options_.inner);
  }

  // Its graph holds T copies of everything that a step computes.
  bool wants_unrolled() const {
    constexpr int64_t large = 1'000'000;  // T n
    if (options_.inner.steps * start_.numel() <= large) return true;
    return std::any_of(methods_.begin(), methods_.end(), [](const Method& m) { return !m.implicit; });
  }

  EstimatorSettings settings_for(const Method& method) const {
    EstimatorSettings settings = options_.settings;
    if (krylov_to_rounding(method)) {
      settings.terms = std::clamp<int64_t>(
          10 * start_.numel(), 100, method.traits.negative_curvature ? most_minres_steps : most_cg_steps);
      settings.relative_tolerance = start_.scalar_type() == at::kDouble ? 1e-12 : 1e-5;
    }
    if (!options_.budget_given) {
      const int64_t states =
          static_cast<int64_t>(std::log2(static_cast<double>(options_.inner.steps + 1))) + 1;
      settings.byte_budget = std::max(std::min(settings.byte_budget, states * state_bytes()), state_bytes());
    }
    return settings;
  }

  MethodRow compare(const Method& method, const HypergradientEstimator& estimator,
                    Hypergradient hypergradient) const {
    MethodRow row{.name = method.name,
                  .implicit = method.implicit,
                  .own = method.own != nullptr,
                  .traits = estimator.traits(),
                  .terms = {},
                  .hypergradient = std::move(hypergradient),
                  .error_implicit = none,
                  .error_unrolled = none,
                  .cosine_implicit = none,
                  .cosine_unrolled = none,
                  .error_bound = none,
                  .own_error = none,
                  .theory = none,
                  .why = {}};
    const Tensor& value = row.hypergradient.value;
    row.error_implicit = relative_error(value, result_.implicit.value);
    row.error_unrolled = relative_error(value, result_.unrolled.value);
    if (result_.implicit.value.defined()) {
      const double scale = result_.implicit.value.norm().item<double>();
      row.error_bound = row.hypergradient.bound.value / (scale > 0 ? scale : 1);
    }
    if (value.defined()) row.vacuous = is_vacuous(row.hypergradient.bound, value.norm().item<double>());
    row.cosine_implicit = cosine(value, result_.implicit.value);
    row.cosine_unrolled = cosine(value, result_.unrolled.value);
    return row;
  }

  // Forward mode takes T * m products of two kinds: minutes or days where x is large. It is run if asked for
  // by name, and so is one of a user's own.
  std::string too_long(const Method& method) {
    const bool asked_for = by_name() || method.own;
    if (asked_for || !method.traits.per_outer_variable || options_.inner.steps == 0) return {};
    const auto linear = oracle_.linearize(final_.final.w, x_, Batch{});
    linear->hessian(final_.final.w);
    const auto begin = std::chrono::steady_clock::now();
    linear->hessian(final_.final.w);
    const double product = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double products = 2.0 * static_cast<double>(options_.inner.steps * x_.numel());
    if (product * products <= options_.patience) return {};
    return fmt::format("not run: {:.3g} products would take about {:.0f} s; request it with --methods {}",
                       products, product * products, method.name);
  }

  bool krylov_to_rounding(const Method& method) const {
    return !method.own && !options_.terms_given && method.traits.approach == Approach::krylov;
  }

  MethodRow run_method(const Method& method) {
    say(method.name);
    const auto estimator = method.make(settings_for(method));
    MethodRow row = compare(method, *estimator, {});
    row.why = too_long(method);
    if (row.why.empty())
      row = compare(method, *estimator,
                    estimator->estimate(oracle_, {.x = x_, .inner = final_, .with_bound = with_bound()}));
    row.terms = krylov_to_rounding(method) ? row.hypergradient.iterations : estimator->terms();
    return row;
  }

  void run_sweep() {
    const auto [from, to] = *options_.sweep;
    const TheoryInputs inputs =
        theory_inputs(oracle_, x_, final_, result_.spectrum, options_.settings.curvature);
    const Tensor at_iterate = inverse_at_iterate();
    KnownConstants known;
    for (const Method& method : methods_) {
      if (!method.has_terms) continue;
      say(fmt::format("sweep of {}", method.name));
      const Tensor& reference = method.implicit ? at_iterate : result_.unrolled.value;
      for (int64_t k = from; k <= to; ++k) {
        EstimatorSettings settings = options_.settings;
        settings.terms = k;
        settings.truncate = k;
        const auto estimator = method.make(settings);
        // An unrolled estimator gathers what its bound needs on the way; of the others the constants are
        // found once.
        HypergradientRequest request{
            .x = x_, .inner = final_, .with_bound = with_bound() && !method.implicit};
        Hypergradient found = estimator->estimate(oracle_, request);
        if (with_bound() && method.implicit) add_error_bound(oracle_, request, found, &known);
        MethodRow row = compare(method, *estimator, std::move(found));
        row.terms = k;
        if (reference.defined()) {
          const double scale = reference.norm().item<double>();
          row.own_error = relative_error(row.hypergradient.value, reference);
          const bool applies = method.implicit || options_.inner.optimizer == "gd";
          if (applies) row.theory = estimator->theory(inputs) / (scale > 0 ? scale : 1);
        }
        result_.sweep.push_back(std::move(row));
      }
    }
  }

  // What the linear solves of the sweep approach: the formula where the inner loop ended, solved or not.
  Tensor inverse_at_iterate() {
    if (result_.implicit.at_iterate) return result_.implicit.value;
    say("the exact inverse at the final iterate");
    return implicit_reference_at(oracle_, x_, final_.final.w, options_.settings.curvature).value;
  }

  const Problem& problem_;
  CheckOptions options_;
  std::vector<Method> methods_;
  const std::function<void(const std::string&)>& progress_;
  Oracle oracle_;
  CheckResult result_;
  std::shared_ptr<const InnerOptimizer> optimizer_;
  Tensor start_, x_;
  Trajectory final_, at_point_;
};

}  // namespace

void CheckOptions::validate() const {
  inner.validate();
  settings.curvature.validate();
  require_at_least("terms", settings.terms, 0);
  require_at_least("truncate", settings.truncate, 0);
  if (sweep && (sweep->first < 0 || sweep->second < sweep->first)) {
    throw std::invalid_argument(
        fmt::format("--sweep K={}..{}: needs 0 <= first <= last", sweep->first, sweep->second));
  }
}

CheckResult check_problem(const Problem& problem, const CheckOptions& options,
                          const std::function<void(const std::string&)>& progress) {
  return Checker(problem, options, progress).run();
}

CheckResult check_problem(const NamedProblem& problem, const CheckOptions& options,
                          const std::function<void(const std::string&)>& progress) {
  CheckOptions of_problem = options;
  of_problem.problem = problem.name;
  of_problem.constant_curvature = problem.constant_curvature;
  return check_problem(*problem.problem, of_problem, progress);
}

}  // namespace bilevel
