#include "bilevel/algorithms/failure.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/core/errors.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/require.h"
#include "bilevel/core/spectrum.h"

namespace bilevel {
namespace {

constexpr double out_of_hand = 1e3;   // times what it was at first
constexpr double well_within = 1e-2;  // of that limit: a state to go back to

// Two digits are enough to name a rate.
constexpr SpectrumOptions rough{.relative_tolerance = 1e-2, .max_products = 100};

Spectrum inner_spectrum(const Problem& problem, const AlgorithmState& state, const Batch& batch = {},
                        const SpectrumOptions& options = rough) {
  Oracle oracle(problem);  // not counted
  try {
    const auto linear = oracle.linearize(state.inner.w, state.x, batch);
    return extreme_eigenvalues([&](const Tensor& v) { return linear->hessian(v); }, state.inner.w.numel(),
                               state.inner.w.options(), options);
  } catch (const NotFiniteError&) {  // the loss itself: a request for a cause must still get an answer
    Spectrum none;
    none.smallest = none.largest = std::numeric_limits<double>::quiet_NaN();
    none.status = Status::not_finite;
    return none;
  }
}

bool is_finite(const Spectrum& s) { return std::isfinite(s.smallest) && std::isfinite(s.largest); }

// The rate of the next inner step, and whether it belongs to x.
struct RateInUse {
  double value = 0;
  bool learned = false;
};
RateInUse inner_rate(const Problem& problem, const AlgorithmSettings& settings, const AlgorithmState& state) {
  const double factor = settings.inner.schedule.factor(state.inner.step);
  const Tensor learned = problem.inner_rate(state.x);
  if (learned.defined()) return {learned.max().item<double>() * factor, true};
  return {settings.inner.rate * factor, false};
}

// What a series or a single-loop algorithm's v moves by, where it is not the inner rate.
double own_linear_rate(const AlgorithmSettings& s) {
  return s.hypergradient.linear_rate > 0 ? s.hypergradient.linear_rate : s.linear_rate;
}
double own_linear_rate(const AlgorithmSettings& s, const AlgorithmState& state) {
  return own_linear_rate(s) * s.linear_schedule.factor(state.iteration);
}

std::string limit_text(const AlgorithmSettings& settings, double safe) {
  return settings.inner.optimizer == "gd" ? fmt::format("2/L = {:.4g}", safe)
                                          : fmt::format("{:.4g} (of {})", safe, settings.inner.optimizer);
}

std::string eigenvalue_text(const Spectrum& s) {
  return fmt::format("L = {:.4g} is the inner Hessian's largest eigenvalue", s.largest);
}

double half_outer(const AlgorithmSettings& settings) { return settings.outer.rate / 2; }

// x, not the inner rate, is what changed: the rate was safe where the last good iteration began.
std::optional<FailureCause> moved_too_far(const Problem& problem, const AlgorithmSettings& settings,
                                          const AlgorithmState& good, const Spectrum& here, double rate,
                                          double safe) {
  const Spectrum before = inner_spectrum(problem, good);
  if (!is_finite(before)) return std::nullopt;
  const double safe_before = make_inner_optimizer(settings.inner)->largest_safe_rate(before.largest);
  if (rate >= safe_before) return std::nullopt;
  const std::string there =
      is_finite(here) ? fmt::format("the inner rate {:.4g} is above {}", rate, limit_text(settings, safe))
                      : std::string("the inner Hessian is not finite");
  return FailureCause{
      .blame = Blame::outer_rate,
      .cause = fmt::format("The last outer step took x to where {}; before it, rates up to {:.4g} "
                           "were safe: take --outer-rate {:.2g}.",
                           there, safe_before, half_outer(settings)),
      .confirmed = true,
      .smallest = before.smallest,
      .largest = before.largest};
}

FailureCause curvature_of(const Spectrum& s, const AlgorithmSettings* settings) {
  const double damping = settings != nullptr ? settings->hypergradient.curvature.damping : 0;
  FailureCause d{.blame = Blame::curvature, .confirmed = true, .smallest = s.smallest, .largest = s.largest};
  d.cause = fmt::format(
      "The inner Hessian has eigenvalues from {:.4g} to {:.4g} here, and a solver or a series needs positive "
      "ones: take --damping {:.2g}, --curvature gauss-newton, or --algorithm double-loop with --method "
      "truncated; --method auto chooses by a diagnosis, --on-failure damp raises the damping by itself.",
      s.smallest, s.largest, std::max(-1.5 * s.smallest, 2 * damping));
  return d;
}

}  // namespace

OnFailure parse_on_failure(const std::string& name) {
  for (const OnFailure choice : {OnFailure::stop, OnFailure::backtrack, OnFailure::damp}) {
    if (name == name_of(choice)) return choice;
  }
  refuse_unknown("on_failure", name, {"stop", "backtrack", "damp"});
}

std::string_view name_of(OnFailure choice) {
  return choice == OnFailure::stop ? "stop" : choice == OnFailure::backtrack ? "backtrack" : "damp";
}

AlgorithmSettings adjusted(AlgorithmSettings s, const Adjustment& a) {
  s.inner.rate *= a.inner_rate;
  s.linear_rate *= a.linear_rate;
  s.hypergradient.linear_rate *= a.linear_rate;
  s.outer.rate *= a.outer_rate;
  s.joint_rate *= a.outer_rate;
  s.hypergradient.curvature.damping += a.damping;
  return s;
}

void FailureWatch::begin(double w, double direction) {
  if (largest_w == 0) largest_w = out_of_hand * (1 + w);
  if (largest_direction == 0) largest_direction = out_of_hand * direction;
}

bool FailureWatch::healthy(double w, double direction) const {
  return w <= well_within * largest_w &&
         (largest_direction == 0 || direction <= well_within * largest_direction);
}

bool FailureWatch::alarmed(double w, double direction) const {
  const auto beyond = [](double value, double largest, double looked_into) {
    return largest > 0 && value > std::max(largest, 10 * looked_into);
  };
  return beyond(w, largest_w, looked_into_w) || beyond(direction, largest_direction, looked_into_direction);
}

void FailureWatch::false_alarm(double w, double direction) {
  looked_into_w = std::max(looked_into_w, w);
  looked_into_direction = std::max(looked_into_direction, direction);
}

FailureCause find_cause(const Problem& problem, const AlgorithmSettings* settings,
                        const AlgorithmState& state, const AlgorithmState& good) {
  const Spectrum here = inner_spectrum(problem, state);
  if (settings == nullptr) {
    if (!is_finite(here)) return {.blame = Blame::data, .cause = "The inner Hessian is not finite there."};
    return {.cause = fmt::format("Gradient steps are safe there up to the rate 2/L = {:.4g}; {}.",
                                 here.largest_safe_rate(), eigenvalue_text(here)),
            .smallest = here.smallest,
            .largest = here.largest};
  }
  const RateInUse rate = inner_rate(problem, *settings, state);
  const double safe =
      is_finite(here) ? make_inner_optimizer(settings->inner)->largest_safe_rate(here.largest) : 0;
  if (rate.value >= safe) {
    if (good.iteration != state.iteration) {
      if (const auto moved = moved_too_far(problem, *settings, good, here, rate.value, safe)) return *moved;
    }
    if (!is_finite(here)) {
      return {
          .blame = Blame::data,
          .cause = "The inner Hessian is not finite at the last good point: check the data and the start."};
    }
    FailureCause d{.blame = rate.learned ? Blame::outer_rate : Blame::inner_rate,
                   .confirmed = true,
                   .safe_rate = safe,
                   .smallest = here.smallest,
                   .largest = here.largest};
    d.cause = fmt::format("The {}inner rate {:.4g} is above {}, the largest that is safe here ({}): ",
                          rate.learned ? "learned " : "", rate.value, limit_text(*settings, safe),
                          eigenvalue_text(here));
    d.cause += rate.learned ? fmt::format("take --outer-rate {:.2g}, or begin with a smaller one.",
                                          half_outer(*settings))
                            : fmt::format("take --inner-rate {:.2g}.", safe / 2);
    return d;
  }
  const double damping = settings->hypergradient.curvature.damping;
  if (const double linear = own_linear_rate(*settings, state); linear * (here.largest + damping) >= 2) {
    const double safe_linear = 2 / (here.largest + damping);
    return {.blame = Blame::linear_rate,
            .cause =
                fmt::format("The rate {:.4g} of the linear system is above 2/L = {:.4g}, the largest that is "
                            "safe here: take --linear-rate {:.2g}.",
                            linear, safe_linear, safe_linear / 2),
            .confirmed = true,
            .safe_rate = safe_linear,
            .smallest = here.smallest,
            .largest = here.largest};
  }
  if (here.has_negative_curvature() && here.smallest + damping < 0) {
    FailureCause d = curvature_of(here, settings);
    d.confirmed = false;  // a network has it always, and may be doing well
    return d;
  }
  return {.blame = Blame::outer_rate,
          .cause = fmt::format("The inner rate {:.4g} is safe here ({}), which leaves the outer step: take "
                               "--outer-rate {:.2g}.",
                               rate.value, limit_text(*settings, safe), half_outer(*settings)),
          .smallest = here.smallest,
          .largest = here.largest};
}

FailureCause find_curvature_cause(const Problem& problem, const AlgorithmSettings* settings,
                                  const AlgorithmState& state) {
  return curvature_of(inner_spectrum(problem, state), settings);
}

FailureCause find_linear_cause(const Problem& problem, const AlgorithmSettings* settings,
                               const AlgorithmState& state) {
  const Spectrum here = inner_spectrum(problem, state);
  if (settings == nullptr || !is_finite(here)) return find_cause(problem, settings, state, state);
  const double damping = settings->hypergradient.curvature.damping;
  const double own = own_linear_rate(*settings, state);
  const double rate = own > 0 ? own : inner_rate(problem, *settings, state).value;
  const double safe = 2 / (here.largest + damping);
  FailureCause d{.blame = own > 0 ? Blame::linear_rate : Blame::inner_rate,
                 .confirmed = rate >= safe,
                 .safe_rate = std::min(safe, rate),
                 .smallest = here.smallest,
                 .largest = here.largest};
  d.cause = rate >= safe
                ? fmt::format(
                      "The rate {:.4g} of the linear system{} is above 2/L = {:.4g}, the largest that is "
                      "safe here: take --linear-rate {:.2g}.",
                      rate, own > 0 ? "" : ", the inner rate,", safe, safe / 2)
                : fmt::format(
                      "The rate {:.4g} of the linear system{} is below 2/L = {:.4g} on all examples, but "
                      "not on single batches, whose curvature is larger: take --linear-rate {:.2g}, or "
                      "larger batches.",
                      rate, own > 0 ? "" : ", the inner rate,", safe, rate / 2);
  return d;
}

std::string curvature_on_batch(const Problem& problem, const AlgorithmState& state, const Batch& batch) {
  const Spectrum s = inner_spectrum(problem, state, batch,
                                    {.dense_below = 0, .relative_tolerance = 0.05, .max_products = 20});
  if (!is_finite(s)) return "The weights' curvature before the step is not finite either.";
  return fmt::format(
      "Before the step the largest curvature on a batch was {:.3g}, where plain gradient steps are safe up "
      "to the rate 2/L = {:.3g}.",
      s.largest, s.largest_safe_rate());
}

std::optional<std::string> repair(OnFailure choice, const FailureCause& why, const AlgorithmSettings& now,
                                  Adjustment& adjustment) {
  if (choice == OnFailure::backtrack) {
    // To half of the safe rate at once: from far above it halving alone would take all the repairs.
    if (why.blame == Blame::inner_rate) {
      const double rate = std::min(now.inner.rate, why.safe_rate) / 2;
      adjustment.inner_rate *= rate / now.inner.rate;
      return fmt::format("went back; inner rate {:.4g} to {:.4g}", now.inner.rate, rate);
    }
    if (why.blame == Blame::linear_rate) {
      const double before = own_linear_rate(now), rate = std::min(before, why.safe_rate) / 2;
      adjustment.linear_rate *= rate / before;
      return fmt::format("went back; linear rate {:.4g} to {:.4g}", before, rate);
    }
    if (why.blame == Blame::outer_rate) {
      adjustment.outer_rate /= 2;
      return fmt::format("went back; outer rate {:.4g} to {:.4g}", now.outer.rate, now.outer.rate / 2);
    }
  }
  if (choice == OnFailure::damp && (why.blame == Blame::curvature || why.blame == Blame::outer_rate)) {
    const double before = now.hypergradient.curvature.damping;
    // Above the most negative eigenvalue, or a hundredth of the largest, and at least twice what it was.
    const double added = std::max({-1.5 * why.smallest - before, 0.01 * why.largest, before});
    if (!(added > 0) || !std::isfinite(added)) return std::nullopt;
    adjustment.damping += added;
    return fmt::format("went back; damping {:.4g} to {:.4g}", before, before + added);
  }
  return std::nullopt;
}

}  // namespace bilevel
