#include "bilevel/check/diagnose.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bilevel/check/bounds.h"
#include "bilevel/check/least_terms.h"
#include "bilevel/check/references.h"
#include "bilevel/core/errors.h"

namespace bilevel {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr double inner_share = 0.5;    // of the accuracy, left to an inner problem that is not quite solved
constexpr double total_share = 0.9;    // of the accuracy, that a choice may use up here: x will move
constexpr int64_t large_inner = 1000;  // unknowns, above which nothing is factorised
constexpr int64_t state_limit = int64_t{1} << 30;  // bytes of iterates that a sweep over truncated may keep

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double length(const Tensor& t) { return t.norm().item<double>(); }

double relative_error(const Tensor& value, const Tensor& reference) {
  if (!value.defined() || !reference.defined()) return none;
  const double scale = length(reference), error = length(value - reference);
  return scale > 0 ? error / scale : error;
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
}
bool has_terms(const std::string& name) {
  return is_one_of(name, {"truncated", "neumann", "cg", "minres", "fixed-point", "nystrom"});
}
bool is_series(const std::string& name) { return is_one_of(name, {"neumann", "fixed-point"}); }
// The same numbers as reverse, kept or ordered in another way.
bool is_reverse(const std::string& name) {
  return is_one_of(name, {"reverse", "reverse-sqrt", "reverse-binomial", "general-backward",
                          "general-forward", "forward"});
}

// Yardstick for the cheapest: a second derivative times a vector costs about two gradients. Fixed weights
// and not seconds, or two runs would recommend two methods.
double price(const OracleCounts& c) {
  return static_cast<double>(c.inner_gradient + c.outer_gradient + 2 * (c.hessian + c.cross));
}

class Diagnoser {
 public:
  Diagnoser(const DiagnosedProblem& named, const DiagnoseOptions& options,
            const std::function<void(const std::string&)>& progress)
      : named_(named), options_(options), progress_(progress), oracle_(*named.problem) {
    options_.validate();
  }

  Diagnosis run() {
    const auto begin = Clock::now();
    x_ = options_.x.defined() ? options_.x : named_.problem->initial_outer(options_.seed);
    start_ = options_.w.defined() ? options_.w : named_.problem->initial_inner(options_.seed);
    const Tensor learned = named_.problem->inner_start(x_);
    if (learned.defined()) start_ = learned.detach();
    report_.problem = named_.name;
    report_.inner_size = start_.numel();
    report_.outer_size = x_.numel();
    report_.accuracy = options_.accuracy;
    report_.curvature = options_.settings.curvature;
    inner_ = options_.inner;
    if (!options_.given.steps) inner_.steps = named_.inner_steps;
    if (!options_.given.rate) inner_.rate = named_.inner_rate;
    inner_.schedule = {};
    time_units();
    say("spectrum at the start");
    report_.start = point_at(start_);
    const bool only_steps_matter =
        learned.defined() || oracle_.inner_rate(x_).defined() || !named_.problem->inner_loss_uses_outer();
    if (only_steps_matter) {
      diagnose_steps();
    } else if (!(named_.check.solvable && find_solution())) {
      diagnose_iterate();
    } else {
      diagnose_solution();
    }
    recommend();
    report_.counts = oracle_.counts();
    report_.seconds = since(begin);
    return std::move(report_);
  }

 private:
  void say(const std::string& what) const {
    if (progress_) progress_(what);
  }

  // ---- what one call costs, and how the curvature looks ----

  template <typename Call>
  static double timed(Call call) {
    call();  // the first one pays for memory and caches
    const auto begin = Clock::now();
    const std::clock_t cpu = std::clock();
    call();
    // On a busy machine the clock on the wall counts other people's work.
    return std::min(since(begin), static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
  }

  void time_units() {
    UnitSeconds& u = report_.unit;
    const auto linear = oracle_.linearize(start_, x_, Batch{});
    const Tensor v = at::ones_like(start_);
    u.inner_gradient = timed([&] { oracle_.inner_gradient(start_, x_, Batch{}); });
    u.outer_gradient = timed([&] { oracle_.outer_gradients(start_, x_, Batch{}); });
    u.hessian = timed([&] { linear->hessian(v); });
    if (named_.problem->inner_loss_uses_outer()) u.cross = timed([&] { linear->cross(v); });
  }

  // As many products as take up a part of the patience.
  int64_t products_for(double part, int64_t least, int64_t most) const {
    const double affordable = part * options_.patience / std::max(report_.unit.hessian, 1e-9);
    return std::clamp(static_cast<int64_t>(std::min(affordable, 1e9)), least, most);
  }

  Spectrum spectrum_at(const Tensor& w, const CurvatureOptions& curvature = {}) {
    const auto linear = oracle_.linearize(w, x_, Batch{});
    const MatrixProduct product = [&](const Tensor& v) {
      const Tensor hv = curvature.kind == "gauss-newton" ? linear->gauss_newton(v) : linear->hessian(v);
      return curvature.damping > 0 ? at::add(hv, v, curvature.damping) : hv;
    };
    SpectrumOptions lanczos;
    lanczos.seed = options_.seed;
    // The ends to a few digits: a rate or a K is not known better.
    if (w.numel() > 512) lanczos.relative_tolerance = 1e-4;
    lanczos.max_products = products_for(0.1, 30, 1000);
    return extreme_eigenvalues(product, w.numel(), w.options(), lanczos);
  }

  InnerPoint point_at(const Tensor& w) {
    InnerPoint point;
    point.spectrum = spectrum_at(w);
    point.gradient_norm = length(oracle_.inner_gradient(w, x_, Batch{}));
    point.distance = positive(point.spectrum) ? point.gradient_norm / point.spectrum.smallest : none;
    return point;
  }

  // Lanczos's own tolerance decides what is still zero.
  double zero(const Spectrum& s) const {
    const double relative = start_.scalar_type() == at::kDouble ? 1e-9 : 1e-5;
    return std::max(s.rounding, relative * std::max(std::abs(s.largest), std::abs(s.smallest)));
  }
  bool positive(const Spectrum& s) const { return s.smallest > zero(s); }
  bool negative(const Spectrum& s) const { return s.smallest < -zero(s); }

  // ---- the inner loop ----

  // The state after t steps, from the nearest one that was met before.
  InnerState state_at(int64_t t) {
    if (states_.empty()) states_[0] = make_inner_optimizer(inner_)->start(start_);
    auto nearest = std::prev(states_.upper_bound(t));
    if (nearest->first == t) return nearest->second;
    InnerRun run;
    run.options = inner_;
    run.options.steps = t - nearest->first;
    run.measure_gradient = false;
    const InnerState state = continue_inner(oracle_, x_, nearest->second, run).final;
    // A bisection comes back to the last few only.
    if (states_.size() > 12) states_.erase(std::next(states_.begin()));
    states_[t] = state;
    return state;
  }

  Trajectory standing_at(const InnerState& state) const {
    Trajectory here;
    here.options = inner_;
    here.optimizer = make_inner_optimizer(inner_);
    here.final = state;
    return here;
  }

  int64_t state_bytes() const {
    return static_cast<int64_t>(start_.nbytes()) * (1 + make_inner_optimizer(inner_)->buffer_count());
  }

  void set_rates(double smallest, double largest) {
    report_.smallest_curvature = smallest;
    report_.largest_curvature = largest;
    report_.largest_safe_rate = make_inner_optimizer(inner_)->largest_safe_rate(largest);
    report_.best_rate = best_inner_rate(inner_, smallest, largest);
    report_.contraction = step_contraction(inner_, smallest, largest);
    InnerOptions best = inner_;
    best.rate = report_.best_rate;
    report_.best_contraction = step_contraction(best, smallest, largest);
    report_.steps_predicted = steps_to_shrink(report_.contraction, options_.accuracy);
  }

  // ---- the three kinds of problem ----

  // Whether the inner problem can be solved and has positive curvature there.
  bool find_solution() {
    Tensor from = start_;
    // Where there are several solutions, the one that the inner loop goes to.
    if (!named_.convex) {
      from = loop_end();
      const Spectrum there = spectrum_at(from);
      if (!positive(there)) {
        report_.reference_why =
            fmt::format("the smallest curvature where the inner loop ends is {:.3g}", there.smallest);
        return false;
      }
    }
    say("the exact hypergradient: solving the inner problem by Newton's method");
    const NewtonLimits limits{.iterations = 100, .products = products_for(0.5, 200, 1 << 20)};
    ImplicitReference reference = implicit_reference(oracle_, x_, from, {}, limits);
    if (!reference.value.defined()) {
      report_.reference_why = reference.why;
      return false;
    }
    const InnerPoint solution = point_at(reference.inner.w);
    if (!positive(solution.spectrum)) {
      report_.reference_why = fmt::format("the smallest curvature at the solved inner problem is {:.3g}",
                                          solution.spectrum.smallest);
      return false;
    }
    report_.solution = solution;
    implicit_ = reference.value;
    return true;
  }

  // After the problem's own T, at a rate that the curvature at the start allows.
  Tensor loop_end() {
    const double safe = make_inner_optimizer(inner_)->largest_safe_rate(report_.start.spectrum.largest);
    if (!options_.given.rate && inner_.rate >= safe) inner_.rate = safe / 2;
    say(fmt::format("inner loop, {} steps", inner_.steps));
    return state_at(inner_.steps).w;
  }

  // Everything is measured against the exact hypergradient.
  void diagnose_solution() {
    report_.reference = ReferenceKind::solution;
    const Spectrum& a = report_.start.spectrum;
    const Spectrum& b = report_.solution->spectrum;
    const double largest = std::max(a.largest, b.largest);
    const double smallest = positive(a) ? std::min(a.smallest, b.smallest) : b.smallest;
    const double elsewhere = named_.rate_limit > 0 ? 1 / named_.rate_limit : 0;
    inner_ = plan_inner(inner_, options_.given, smallest, std::max(largest, elsewhere));
    states_.clear();
    set_rates(smallest, largest);
    find_steps();
    report_.end = point_at(state_at(inner_.steps).w);
    unrolled_ = implicit_;
    for (const EstimatorRow& row : estimator_rows()) diagnose_method(row);
  }

  // T whose unsolvedness costs a share of the accuracy, by nearly exact inverses along the loop.
  void find_steps() {
    say("how many inner steps");
    const int64_t budget = oracle_calls(oracle_.counts()) + 8 * options_.calls_per_method;
    Tensor solution;
    const auto error_at = [&](int64_t t) {
      EstimatorSettings settings;
      settings.terms = 10000;
      settings.relative_tolerance =
          std::max(5e-3 * options_.accuracy, start_.scalar_type() == at::kDouble ? 1e-12 : 1e-6);
      Trajectory here = standing_at(state_at(t));
      HypergradientRequest request{.x = x_, .inner = here};
      request.warm_start = solution;
      const Hypergradient h = make_estimator("cg", settings)->estimate(oracle_, request);
      if (h.solution.defined()) solution = h.solution;
      return relative_error(h.value, implicit_);
    };
    if (options_.given.steps) {
      report_.inner_error = error_at(inner_.steps);
      report_.inner_basis = Basis::measured;
      return;
    }
    const LeastTerms found =
        least_terms(error_at, {.target = inner_share * options_.accuracy, .contraction = report_.contraction},
                    [&](int64_t) { return oracle_calls(oracle_.counts()) < budget; });
    inner_.steps = found.terms;
    report_.inner_error = found.error;
    report_.inner_basis = found.extrapolated ? Basis::extrapolated : Basis::measured;
  }

  // No one knows the exact hypergradient: the formula is measured where the loop ends, on a curvature that
  // can be inverted, and what goes through the steps against the steps.
  void diagnose_iterate() {
    const Tensor w = loop_end();
    report_.end = point_at(w);
    const Spectrum& s = report_.end.spectrum;
    report_.negative_curvature = negative(s);
    set_rates(s.smallest, std::max(s.largest, report_.start.spectrum.largest));
    report_.inner_error = none;
    choose_curvature(w);
    find_iterate_reference(w);
    find_unrolled_reference();
    for (const EstimatorRow& row : estimator_rows()) diagnose_method(row);
  }

  bool has_gauss_newton(const Tensor& w) {
    try {
      oracle_.linearize(w, x_, Batch{})->gauss_newton(at::ones_like(w));
      return true;
    } catch (const std::invalid_argument&) {
      return false;
    }
  }

  // The Hessian where it is positive; else the Gauss-Newton matrix, which is, with as much damping as the
  // Hessian is negative: what that matrix leaves out has this size.
  void choose_curvature(const Tensor& w) {
    CurvatureOptions& c = options_.settings.curvature;
    if (!options_.curvature_given && !positive(report_.end.spectrum)) {
      c.kind = "hessian";
      if (!has_gauss_newton(w)) {
        report_.curvature = c;
        return;
      }
      c.kind = "gauss-newton";
      c.damping = 0;
      const double largest = spectrum_at(w, c).largest;
      const double missing = std::max(-report_.end.spectrum.smallest, 0.0);
      const double wanted = std::max({named_.check.damping, missing, 1e-3 * largest});
      c.damping = std::stod(fmt::format("{:.2g}", wanted));
    }
    const Spectrum s = spectrum_at(w, c);
    inverted_ = s;
    if (positive(s)) {
      invertible_ = true;
      if (!(c.kind == "hessian" && c.damping == 0)) {
        options_.settings.series_rate = std::stod(fmt::format("{:.3g}", 0.99 / s.largest));
      }
    }
    report_.curvature = c;
  }

  void find_iterate_reference(const Tensor& w) {
    if (!invertible_) return;
    say("the implicit formula where the inner loop ends");
    EstimatorSettings settings;
    settings.curvature = options_.settings.curvature;
    settings.terms = products_for(0.25, 50, 3000);
    settings.relative_tolerance =
        std::max(1e-3 * options_.accuracy, start_.scalar_type() == at::kDouble ? 1e-12 : 1e-6);
    Trajectory here = standing_at(make_inner_optimizer(inner_)->start(w));
    const Hypergradient h = make_estimator("cg", settings)->estimate(oracle_, {.x = x_, .inner = here});
    if (h.status != Status::converged) {
      report_.reference_why += fmt::format("{}conjugate gradients on the {} at the iterate ended as {}",
                                           report_.reference_why.empty() ? "" : "; ",
                                           options_.settings.curvature.kind, name_of(h.status));
      return;
    }
    report_.reference = ReferenceKind::iterate;
    implicit_ = h.value;
  }

  void find_unrolled_reference() {
    const int64_t steps = inner_.steps;
    const UnitSeconds& u = report_.unit;
    const double seconds = static_cast<double>(steps) * (u.inner_gradient + u.hessian + u.cross);
    if (seconds > options_.patience / 4 || steps * state_bytes() > state_limit) return;
    say("back-propagation through all steps");
    unrolled_ = run_from_start(*make_estimator("reverse", options_.settings), steps).value;
  }

  // A learned start or rate: the derivative of the steps taken is the exact one.
  void diagnose_steps() {
    report_.reference_why = "start or rate are part of x: what counts is the derivative of the steps taken";
    const Spectrum& s = report_.start.spectrum;
    set_rates(s.smallest, s.largest);
    find_unrolled_reference();
    if (unrolled_.defined()) report_.reference = ReferenceKind::unrolled;
    report_.inner_error = none;
    InnerRun run;
    run.options = inner_;
    report_.end = point_at(run_inner(oracle_, x_, start_, run).final.w);
    report_.negative_curvature = negative(report_.end.spectrum);
    for (const EstimatorRow& row : estimator_rows()) diagnose_method(row);
  }

  // ---- one estimator ----

  Hypergradient run_from_start(const HypergradientEstimator& estimator, int64_t steps) {
    InnerOptions options = inner_;
    options.steps = steps;
    return hypergradient_at(oracle_, x_, start_, options, estimator).hypergradient;
  }

  struct Trial {
    Hypergradient hypergradient;
    double error = none;
    int64_t terms = 0, steps = 0;
  };

  Trial try_terms(const EstimatorRow& row, int64_t terms, int64_t steps) {
    EstimatorSettings settings = options_.settings;
    settings.terms = settings.truncate = terms;
    settings.byte_budget = std::max<int64_t>(
        state_bytes() * (1 + static_cast<int64_t>(std::log2(static_cast<double>(steps + 1)))), 1);
    const auto estimator = make_estimator(row.name, settings);
    Trial trial;
    trial.terms = terms;
    trial.steps = steps;
    if (row.name == "truncated") {
      trial.hypergradient = estimator->estimate(oracle_, {.x = x_, .inner = kept_trajectory(steps)});
    } else if (report_.reference != ReferenceKind::unrolled &&
               estimator->keeps(steps, state_bytes()).empty()) {
      Trajectory here = standing_at(state_at(steps));
      trial.hypergradient = estimator->estimate(oracle_, {.x = x_, .inner = here});
    } else {
      trial.hypergradient = run_from_start(*estimator, steps);
    }
    trial.error = relative_error(trial.hypergradient.value, row.implicit ? implicit_ : unrolled_);
    if (!std::isfinite(trial.error)) trial.error = std::numeric_limits<double>::infinity();
    return trial;
  }

  Trajectory& kept_trajectory(int64_t steps) {
    if (kept_steps_ != steps) {
      InnerRun run;
      run.options = inner_;
      run.options.steps = steps;
      for (int64_t t = 0; t < steps; ++t) run.keep.push_back(t);
      run.measure_gradient = false;
      kept_ = run_inner(oracle_, x_, start_, run);
      kept_steps_ = steps;
    }
    return kept_;
  }

  // Of a term of its series, or of a step that goes back; 1 = not known.
  double contraction_of(const std::string& name) const {
    const Spectrum& s = report_.solution ? report_.solution->spectrum : inverted_;
    if (is_series(name)) {
      const double rate = options_.settings.series_rate > 0 ? options_.settings.series_rate : inner_.rate;
      return s.contraction(rate);
    }
    if (name == "cg" && positive(s)) {
      const double root = std::sqrt(s.largest / s.smallest);
      return (root - 1) / (root + 1);
    }
    if ((name == "truncated" || is_reverse(name)) && report_.solution) return report_.contraction;
    return 1;
  }

  double seconds_of(const OracleCounts& c) const {
    const UnitSeconds& u = report_.unit;
    return static_cast<double>(c.inner_gradient) * u.inner_gradient +
           static_cast<double>(c.outer_gradient) * u.outer_gradient +
           static_cast<double>(c.hessian) * u.hessian + static_cast<double>(c.cross) * u.cross;
  }

  // Fills counts, seconds and bytes of `terms` and `steps` from what was measured at a trial.
  void set_cost(const EstimatorRow& row, const Trial& trial, MethodDiagnosis& d) const {
    d.counts = trial.hypergradient.counts;
    d.bytes = trial.hypergradient.bytes_kept;
    const int64_t more =
        (d.terms ? *d.terms - trial.terms : 0) + (is_reverse(row.name) ? d.inner_steps - trial.steps : 0);
    if (more != 0) {
      d.counts.hessian += more;
      if (!row.implicit) d.counts.cross += more;
      if (is_one_of(row.name, {"truncated", "reverse", "general-backward"})) d.bytes += more * state_bytes();
      if (row.name == "nystrom") d.bytes += more * static_cast<int64_t>(start_.nbytes());
    }
    d.counts.inner_gradient += d.inner_steps;
    d.counts.samples += d.inner_steps * named_.problem->inner_samples();
    d.seconds = seconds_of(d.counts);
  }

  bool worth_measuring(const EstimatorRow& row) const {
    if (!(row.implicit ? implicit_ : unrolled_).defined()) return false;
    return row.name != "forward" ||
           2 * inner_.steps * x_.numel() <= options_.calls_per_method;  // T m products of two kinds
  }

  void diagnose_method(const EstimatorRow& row) {
    say(row.name);
    MethodDiagnosis d;
    d.name = row.name;
    d.inner_steps = inner_.steps;
    d.error = d.asked_error = none;
    if (has_terms(row.name)) {
      d.asked_terms = row.name == "truncated" ? std::min(options_.settings.truncate, inner_.steps)
                                              : options_.settings.terms;
      if (row.name == "nystrom") d.asked_terms = std::clamp<int64_t>(*d.asked_terms, 1, start_.numel());
    }
    if (!worth_measuring(row)) {
      predict(row, d);
    } else if (has_terms(row.name)) {
      measure_terms(row, d);
    } else if (is_reverse(row.name)) {
      measure_reverse(row, d);
    } else {
      measure_once(row, d);
    }
    judge(row, d);
    report_.methods.push_back(std::move(d));
  }

  void judge(const EstimatorRow& row, MethodDiagnosis& d) const {
    if (report_.reference == ReferenceKind::unrolled && row.implicit) {
      d.usable = false;
      d.note = "the derivative through a learned start or rate is not implicit";
    } else if (is_one_of(row.name, {"one-step", "t1t2"})) {
      d.usable = false;
      d.note = "it has no K that would lower its error as x moves";
    } else if (row.implicit && !report_.solution && !invertible_) {
      d.usable = false;
      d.note = "the curvature is not positive";
    } else if (is_one_of(row.name, {"general-backward", "general-forward"})) {
      d.usable = false;
      d.note = "reverse for plain steps alone: it knows no momentum";
    } else if (row.name == "exact") {
      d.usable = false;
      d.note = "a reference: cg with enough K is as good and says what it costs";
    } else if (!d.reaches && d.basis != Basis::none) {
      d.note = "the accuracy is out of its reach here";
    }
  }

  void measure_once(const EstimatorRow& row, MethodDiagnosis& d) {
    if (row.name == "exact" && start_.numel() > large_inner && report_.inner_basis == Basis::measured) {
      d.error = report_.inner_error;  // nearly exact inverses were measured along the loop
      d.basis = Basis::measured;
      d.reaches = d.error <= options_.accuracy;
      d.counts.inner_gradient = inner_.steps;
      d.seconds = seconds_of(d.counts);
      d.bytes = 4 * static_cast<int64_t>(start_.nbytes());
      return;
    }
    const Trial trial = try_terms(row, 0, inner_.steps);
    d.error = trial.error;
    d.basis = Basis::measured;
    d.reaches = d.error <= options_.accuracy;
    set_cost(row, trial, d);
  }

  void measure_terms(const EstimatorRow& row, MethodDiagnosis& d) {
    Trial asked = try_terms(row, *d.asked_terms, inner_.steps);
    d.asked_error = asked.error;
    d.asked_basis = Basis::measured;
    int64_t most = row.name == "truncated" ? inner_.steps : int64_t{1} << 24;
    if (row.name == "nystrom") most = start_.numel();
    const int64_t budget = oracle_calls(oracle_.counts()) + options_.calls_per_method;
    Trial last;
    std::map<int64_t, Trial> tried;
    const auto error_at = [&](int64_t k) {
      last = try_terms(row, k, inner_.steps);
      last.hypergradient.solution = Tensor();  // only its numbers are needed
      tried[k] = last;
      return last.error;
    };
    const LeastTerms found = least_terms(
        error_at,
        {.most = most, .target = total_share * options_.accuracy, .contraction = contraction_of(row.name)},
        [&](int64_t k) { return oracle_calls(oracle_.counts()) + k <= budget; });
    d.terms = found.terms;
    d.error = found.error;
    d.reaches = found.reached || found.error <= options_.accuracy;
    d.basis = found.extrapolated ? Basis::extrapolated : Basis::measured;
    const auto at = tried.find(found.terms);
    set_cost(row, at != tried.end() ? at->second : last, d);
  }

  // T is the one number that reverse mode has.
  void measure_reverse(const EstimatorRow& row, MethodDiagnosis& d) {
    const bool fixed = options_.given.steps || !report_.solution;
    if (!reverse_ && !fixed && row.name == "reverse") {
      const int64_t budget = oracle_calls(oracle_.counts()) + options_.calls_per_method;
      const auto error_at = [&](int64_t t) {
        reverse_trial_ = try_terms(row, 0, t);
        return reverse_trial_.error;
      };
      reverse_ = least_terms(error_at,
                             {.first = std::max<int64_t>(inner_.steps / 2, 1),
                              .target = total_share * options_.accuracy,
                              .contraction = report_.contraction},
                             [&](int64_t t) { return oracle_calls(oracle_.counts()) + 3 * t <= budget; });
    }
    const int64_t steps = reverse_ ? reverse_->terms : inner_.steps;
    const bool measured = !reverse_ || (!reverse_->extrapolated && 3 * steps <= options_.calls_per_method);
    const bool own = row.name == "reverse" && reverse_ && reverse_trial_.steps == steps;
    const Trial trial = own                     ? reverse_trial_
                        : measured              ? try_terms(row, 0, steps)
                        : row.name == "reverse" ? reverse_trial_
                                                : try_terms(row, 0, std::min<int64_t>(steps, 20));
    d.inner_steps = steps;
    d.error = measured ? trial.error : reverse_->error;
    d.basis = measured ? Basis::measured : Basis::extrapolated;
    d.reaches = measured ? d.error <= options_.accuracy : reverse_->reached;
    set_cost(row, trial, d);
  }

  // Where nothing can be measured: the theory's bounds, and counts by their formulas.
  void predict(const EstimatorRow& row, MethodDiagnosis& d) {
    const int64_t n_bytes = static_cast<int64_t>(start_.nbytes()), m = x_.numel(), t = inner_.steps;
    d.counts.inner_gradient = t;
    d.counts.outer_gradient = 1;
    if (row.name == "forward") {
      d.counts.hessian = std::max<int64_t>(t - 1, 0) * m;
      d.counts.cross = t * m;
      d.bytes = n_bytes * m;
      d.inner_steps = reverse_ ? reverse_->terms : t;
      d.note = "T m products of two kinds";
      if (reverse_) {
        d.error = reverse_->error;
        d.basis = Basis::extrapolated;
        d.reaches = reverse_->reached;
      }
      d.seconds = seconds_of(d.counts);
      return;
    }
    if (is_reverse(row.name)) {
      d.counts.hessian = std::max<int64_t>(t - 1, 0);
      d.counts.cross = t;
      d.bytes = t * state_bytes();
    }
    if (has_terms(row.name)) predict_terms(row, d);
    d.seconds = seconds_of(d.counts);
  }

  void predict_terms(const EstimatorRow& row, MethodDiagnosis& d) {
    if (!bound_inputs_ && (report_.solution || invertible_)) find_bound_inputs();
    if (!bound_inputs_ || !(scale_ > 0)) return;
    const auto relative = [&](int64_t k) { return error_bound(row.name, k, *bound_inputs_) / scale_; };
    d.asked_error = relative(*d.asked_terms);
    d.asked_basis = Basis::bound;
    const double first = relative(1);
    if (!std::isfinite(first)) return;
    const int64_t more = steps_to_shrink(contraction_of(row.name), options_.accuracy / first);
    if (more > (int64_t{1} << 40)) return;
    d.terms = 1 + more;
    d.error = relative(*d.terms);
    d.basis = Basis::bound;
    d.reaches = true;
    d.counts.hessian = *d.terms;
    d.counts.cross = row.implicit ? 1 : *d.terms;
    d.bytes = row.implicit ? 4 * static_cast<int64_t>(start_.nbytes()) : *d.terms * state_bytes();
  }

  void find_bound_inputs() {
    Trajectory here = standing_at(state_at(inner_.steps));
    EstimatorSettings settings = options_.settings;
    const Hypergradient h = make_estimator("cg", settings)->estimate(oracle_, {.x = x_, .inner = here});
    scale_ = length(h.value);
    bound_inputs_ = bound_inputs(oracle_, x_, here, inverted_, settings.curvature, settings.series_rate);
    bound_inputs_->steps = inner_.steps;  // it stands at their end and holds none of them
  }

  // ---- the choice ----

  const MethodDiagnosis* cheapest() const {
    const auto better = [](const MethodDiagnosis& a, const MethodDiagnosis& b) {
      if ((a.basis == Basis::measured) != (b.basis == Basis::measured)) return a.basis == Basis::measured;
      return price(a.counts) < price(b.counts);
    };
    const MethodDiagnosis* best = nullptr;
    for (const MethodDiagnosis& d : report_.methods) {
      if (d.reaches && d.usable && (best == nullptr || better(d, *best))) best = &d;
    }
    if (best != nullptr) return best;
    // Out of reach for all: the one that comes nearest, unless it is nearer by a hair.
    for (const MethodDiagnosis& d : report_.methods) {
      if (!d.usable || !std::isfinite(d.error)) continue;
      if (best == nullptr || d.error < 0.9 * best->error) best = &d;
    }
    return best;
  }

  void recommend() {
    Recommendation& r = report_.recommendation;
    const MethodDiagnosis* best = cheapest();
    if (best == nullptr) {
      r.method = "truncated";
      r.has_terms = true;
      r.terms = std::min<int64_t>(options_.settings.truncate, inner_.steps);
      r.inner = inner_;
      r.error = none;
    } else {
      r.reaches = best->reaches;
      r.method = best->name;
      r.has_terms = best->terms.has_value();
      r.terms = best->terms.value_or(0);
      r.inner = inner_;
      r.inner.steps = best->inner_steps;
      r.error = best->error;
      r.basis = best->basis;
      if (find_estimator(r.method).implicit) {
        r.curvature = options_.settings.curvature;
        if (is_series(r.method)) r.series_rate = options_.settings.series_rate;
      }
    }
    report_.inner = r.inner;
    if (best != nullptr) verify(*best);
    r.sentence = sentence(best);
  }

  // One hypergradient with just these settings, from the start: what a user will get.
  void verify(const MethodDiagnosis& best) {
    Recommendation& r = report_.recommendation;
    const EstimatorRow& row = find_estimator(r.method);
    const Tensor& reference = row.implicit ? implicit_ : unrolled_;
    if (!reference.defined() || best.seconds > options_.patience) return;
    say("the recommendation, once more");
    EstimatorSettings settings = options_.settings;
    settings.terms = settings.truncate = r.terms;
    settings.byte_budget = std::max<int64_t>(best.bytes, state_bytes());
    const auto estimator = make_estimator(r.method, settings);
    r.error = relative_error(run_from_start(*estimator, r.inner.steps).value, reference);
    r.basis = Basis::measured;
    r.reaches = r.error <= options_.accuracy;
  }

  std::string sentence(const MethodDiagnosis* best) const {
    const Recommendation& r = report_.recommendation;
    std::string why;
    if (report_.negative_curvature) {
      why = fmt::format(
          "The inner Hessian has an eigenvalue of {:.3g} beside {:.3g}, so that no inverse of it is to be "
          "trusted: ",
          report_.end.spectrum.smallest, report_.end.spectrum.largest);
    } else if (report_.reference == ReferenceKind::unrolled) {
      why = "Start or rate are part of x, so that only the derivative of the steps taken counts: ";
    } else if (!report_.solution && !positive(report_.end.spectrum)) {
      why = fmt::format(
          "The inner curvature is flat ({:.3g} beside {:.3g}), so that its inverse says "
          "little: ",
          report_.end.spectrum.smallest, report_.end.spectrum.largest);
    }
    std::string what = r.method;
    if (r.curvature.kind == "gauss-newton") what += " on the Gauss-Newton matrix";
    if (r.curvature.damping > 0) what += fmt::format(" with damping {:g}", r.curvature.damping);
    if (r.has_terms) what += fmt::format(" with K = {}", r.terms);
    const std::string momentum = r.inner.optimizer == "nesterov" || r.inner.optimizer == "heavy-ball"
                                     ? fmt::format(" (momentum {:g})", r.inner.momentum)
                                     : "";
    const std::string rate =
        oracle_.inner_rate(x_).defined() ? "their learned rate" : fmt::format("rate {:.4g}", r.inner.rate);
    std::string text =
        fmt::format("{}{} {} after T = {} steps of {}{} at {}", why, why.empty() ? "Take" : "take", what,
                    r.inner.steps, r.inner.optimizer, momentum, rate);
    if (best == nullptr) return text + ": nothing could be measured here.";
    const char* against = !find_estimator(r.method).implicit && !report_.solution
                              ? "the derivative of all steps"
                          : report_.reference == ReferenceKind::solution
                              ? "the exact hypergradient"
                              : "that matrix's own inverse where the inner loop ends";
    text += fmt::format("; its error is {:.2g} ({}) against {}", r.error, name_of(r.basis), against);
    if (!r.reaches) {
      text += fmt::format(", above the wished {:g}: {}", options_.accuracy,
                          report_.inner_error > options_.accuracy
                              ? "the inner problem is too far from solved, take more inner steps"
                              : "nothing that was tried comes closer");
    }
    return text + fmt::format("; {} gradients and products a hypergradient.", oracle_calls(best->counts));
  }

  const DiagnosedProblem& named_;
  DiagnoseOptions options_;
  const std::function<void(const std::string&)>& progress_;
  Oracle oracle_;
  Diagnosis report_;
  Tensor x_, start_;
  InnerOptions inner_;
  std::map<int64_t, InnerState> states_;
  Tensor implicit_, unrolled_;  // what implicit methods and those through the steps are measured against
  bool invertible_ = false;     // the curvature at the iterate is positive
  Spectrum inverted_;           // of that curvature
  Trajectory kept_;
  int64_t kept_steps_ = -1;
  std::optional<LeastTerms> reverse_;
  Trial reverse_trial_;
  std::optional<BoundInputs> bound_inputs_;
  double scale_ = 0;
};

}  // namespace

std::string_view name_of(Basis basis) {
  switch (basis) {
    case Basis::none:
      return "not known";
    case Basis::measured:
      return "measured";
    case Basis::extrapolated:
      return "extrapolated";
    case Basis::bound:
      return "bound";
  }
  return "?";
}

void DiagnoseOptions::validate() const {
  if (!(accuracy > 0 && accuracy < 1)) {
    throw std::invalid_argument(fmt::format("--accuracy {}: must be above 0 and below 1", accuracy));
  }
  if (settings.terms < 0) {
    throw std::invalid_argument(fmt::format("--terms {}: must be at least 0", settings.terms));
  }
  if (settings.truncate < 0) {
    throw std::invalid_argument(fmt::format("--truncate {}: must be at least 0", settings.truncate));
  }
  if (calls_per_method < 1) {
    throw std::invalid_argument(fmt::format("--calls {}: must be at least 1", calls_per_method));
  }
  if (!(patience > 0)) {
    throw std::invalid_argument(fmt::format("--patience {}: must be above 0", patience));
  }
  settings.curvature.validate();
  inner.validate();
}

DiagnosedProblem diagnosed(const NamedProblem& p) {
  return {.problem = p.problem.get(),
          .name = p.name,
          .inner_steps = p.inner_steps,
          .inner_rate = p.inner_rate,
          .convex = p.convex,
          .rate_limit = p.constant_curvature ? 0 : p.inner_rate,
          .check = p.check};
}

Diagnosis diagnose(const DiagnosedProblem& problem, const DiagnoseOptions& options,
                   const std::function<void(const std::string&)>& progress) {
  return Diagnoser(problem, options, progress).run();
}

}  // namespace bilevel
