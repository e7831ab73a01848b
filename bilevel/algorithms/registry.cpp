#include "bilevel/algorithms/registry.h"

#include <fmt/format.h>

#include <stdexcept>
#include <type_traits>
#include <utility>

#include "bilevel/algorithms/amigo.h"
#include "bilevel/algorithms/bome.h"
#include "bilevel/algorithms/bsa.h"
#include "bilevel/algorithms/darts.h"
#include "bilevel/algorithms/double_loop.h"
#include "bilevel/algorithms/double_loop_options.h"
#include "bilevel/algorithms/f2sa.h"
#include "bilevel/algorithms/fsla.h"
#include "bilevel/algorithms/ma_soba.h"
#include "bilevel/algorithms/mrbo.h"
#include "bilevel/algorithms/saba.h"
#include "bilevel/algorithms/single_loop.h"
#include "bilevel/algorithms/soba.h"
#include "bilevel/algorithms/stable.h"
#include "bilevel/algorithms/stocbio.h"
#include "bilevel/algorithms/storm_double_loop.h"
#include "bilevel/algorithms/sustain.h"
#include "bilevel/algorithms/ttsa.h"
#include "bilevel/algorithms/vrbo.h"
#include "bilevel/core/require.h"
#include "bilevel/hypergradients/from_settings.h"
#include "bilevel/hypergradients/reverse.h"

namespace bilevel {
namespace {

using Made = std::unique_ptr<Algorithm>;
using Settings = AlgorithmSettings;

// ---- an algorithm's own options out of what was given for any ----

// The rate of an algorithm's own series; the estimators' setting goes first, as in double loops.
double linear_rate(const Settings& s) {
  return s.hypergradient.linear_rate > 0 ? s.hypergradient.linear_rate : s.linear_rate;
}
EstimatorSettings estimator_settings(const Settings& s) {
  EstimatorSettings settings = s.hypergradient;
  settings.linear_rate = linear_rate(s);
  return settings;
}

template <typename EstimatorOptions>
DoubleLoopWith<EstimatorOptions> loop_with(const Settings& s, EstimatorOptions estimator) {
  return {.inner = s.inner, .outer = s.outer, .with_bound = s.with_bound, .estimator = std::move(estimator)};
}
DoubleLoopWith<NoOptions> unrolled(const Settings& s) { return loop_with(s, NoOptions{}); }
DoubleLoopWith<TruncatedOptions> truncated(const Settings& s) {
  return loop_with(s, truncated_options(s.hypergradient));
}
DoubleLoopWith<KrylovOptions> krylov(const Settings& s) {
  return loop_with(s, krylov_options(s.hypergradient));
}
DoubleLoopWith<FixedPointEstimatorOptions> fixed_point(const Settings& s) {
  return loop_with(s, fixed_point_options(estimator_settings(s)));
}
DoubleLoopWith<NeumannEstimatorOptions> neumann(const Settings& s) {
  return loop_with(s, neumann_options(estimator_settings(s)));
}
GrowingLoopOptions growing(const Settings& s) { return {.loop = krylov(s), .growth = s.growth}; }
AnyDoubleLoopOptions any_double_loop(const Settings& s) {
  return {.loop = loop_with(s, estimator_settings(s)), .method = s.method};
}

DartsOptions darts(const Settings& s) {
  return {.inner = s.inner, .outer = s.outer, .curvature = s.hypergradient.curvature};
}
DartsOptions first_order_darts(const Settings& s) {
  DartsOptions options = darts(s);
  options.first_order = true;
  return options;
}

StocbioOptions stocbio(const Settings& s) {
  StocbioOptions options{.inner = s.inner, .outer = s.outer};
  options.terms = s.hypergradient.terms;
  options.linear_rate = linear_rate(s);
  options.strong_convexity = s.strong_convexity;
  options.hessian_batch = s.hessian_batch;
  options.curvature = s.hypergradient.curvature;
  return options;
}

RandomizedSeriesOptions randomized(const Settings& s) {
  return {.terms = s.hypergradient.terms,
          .rate = linear_rate(s),
          .single_sample = s.single_sample,
          .curvature = s.hypergradient.curvature};
}
BsaOptions bsa(const Settings& s) { return {.inner = s.inner, .outer = s.outer, .series = randomized(s)}; }
TtsaOptions ttsa(const Settings& s) {
  TtsaOptions options{.inner = s.inner, .outer = s.outer};
  options.series = randomized(s);
  return options;
}

HoagOptions hoag(const Settings& s) {
  HoagOptions options{.inner_rate = s.inner.rate, .outer = s.outer};
  options.tolerance = s.tolerance;
  options.adaptive = s.adaptive_step;
  options.curvature = s.hypergradient.curvature;
  return options;
}

StormOptions storm(const Settings& s) {
  return {.inner_rate = s.inner.rate, .momentum_decay = s.momentum_decay, .outer = s.outer};
}
FslaOptions fsla(const Settings& s) {
  FslaOptions options{.storm = storm(s)};
  options.linear_rate = s.linear_rate;
  options.v_at = s.v_at;
  options.curvature = s.hypergradient.curvature;
  return options;
}
SingleLoopOptions single_loop(const std::string& solver, const Settings& s) {
  SingleLoopOptions options{.storm = storm(s), .solver = solver};
  options.terms = s.hypergradient.terms;
  options.linear_rate = linear_rate(s);
  options.relative_tolerance = s.hypergradient.relative_tolerance;
  options.curvature = s.hypergradient.curvature;
  return options;
}
StormDoubleLoopOptions storm_double_loop(const Settings& s) {
  return {.inner = s.inner,
          .method = s.method,
          .estimator = estimator_settings(s),
          .momentum_decay = s.momentum_decay,
          .outer = s.outer};
}

RecursiveMomentumOptions momentum(const Settings& s) {
  return {.inner_rate = s.inner.rate,
          .linear_rate = linear_rate(s),
          .averaging = s.averaging,
          .outer = s.outer,
          .curvature = s.hypergradient.curvature};
}
SustainOptions sustain(const Settings& s) {
  return {.terms = s.hypergradient.terms, .momentum = momentum(s)};
}
MrboOptions mrbo(const Settings& s) { return {.terms = s.hypergradient.terms, .momentum = momentum(s)}; }

// Of SOBA and its kin.
template <typename Rule>
Rule one_step_each(const Settings& s) {
  Rule options;
  options.inner_rate = s.inner.rate;
  options.inner_schedule = s.inner.schedule;
  options.linear_rate = s.linear_rate;
  options.linear_schedule = s.linear_schedule;
  options.curvature = s.hypergradient.curvature;
  options.outer = s.outer;
  return options;
}
MaSobaOptions ma_soba(const Settings& s) {
  MaSobaOptions options = one_step_each<MaSobaOptions>(s);
  options.averaging = s.averaging;
  return options;
}

StableOptions stable(const Settings& s) {
  return {.inner_rate = s.inner.rate,
          .averaging = s.averaging,
          .strong_convexity = s.strong_convexity,
          .curvature = s.hypergradient.curvature,
          .outer = s.outer};
}

AmigoOptions amigo(const Settings& s) {
  return {.inner = s.inner,
          .linear_steps = s.hypergradient.terms,
          .linear_rate = linear_rate(s),
          .linear_schedule = s.linear_schedule,
          .outer = s.outer,
          .curvature = s.hypergradient.curvature};
}

VrboOptions vrbo(const Settings& s) {
  return {.inner_steps = s.inner.steps,
          .period = s.period,
          .large_batch = s.large_batch,
          .terms = s.hypergradient.terms,
          .inner_rate = s.inner.rate,
          .linear_rate = linear_rate(s),
          .outer = s.outer,
          .curvature = s.hypergradient.curvature};
}

F2saOptions f2sa(const Settings& s) {
  return {.inner_steps = s.inner.steps,
          .inner_rate = s.inner.rate,
          .schedule = s.inner.schedule,
          .penalty = s.penalty,
          .growth = s.penalty_growth,
          .outer = s.outer};
}

BomeOptions bome(const Settings& s) {
  return {.inner_steps = s.inner.steps,
          .inner_rate = s.inner.rate,
          .joint_rate = s.joint_rate,
          .barrier = s.barrier,
          .outer = s.outer};
}

// ---- algorithms out of their own options ----

enum class Starts { cold, warm_inner, warm_both };

template <typename EstimatorOptions>
DoubleLoopOptions loop_options(const std::string& name, Starts starts,
                               const DoubleLoopWith<EstimatorOptions>& o) {
  DoubleLoopOptions options{.name = name, .inner = o.inner, .outer = o.outer};
  options.warm_start_inner = starts != Starts::cold;
  options.warm_start_linear = starts == Starts::warm_both;
  options.one_batch = name == "idarts";
  options.with_bound = o.with_bound;
  return options;
}

template <typename Estimator, typename EstimatorOptions>
auto double_loop(const std::string& name, Starts starts) {
  return [=](const DoubleLoopWith<EstimatorOptions>& o) -> Made {
    std::unique_ptr<Estimator> estimator;
    if constexpr (std::is_same_v<EstimatorOptions, NoOptions>) {
      estimator = std::make_unique<Estimator>();
    } else {
      estimator = std::make_unique<Estimator>(o.estimator);
    }
    return std::make_unique<DoubleLoop>(loop_options(name, starts, o), std::move(estimator));
  };
}

Made make_growing(const GrowingLoopOptions& o) {
  DoubleLoopOptions options = loop_options("aid-increasing", Starts::warm_both, o.loop);
  options.growth = o.growth > 0 ? o.growth : static_cast<double>(o.loop.inner.steps);
  return std::make_unique<DoubleLoop>(options,
                                      std::make_unique<ConjugateGradientEstimator>(o.loop.estimator));
}

Made make_any_double_loop(const AnyDoubleLoopOptions& o) {
  return std::make_unique<DoubleLoop>(loop_options("double-loop", Starts::warm_both, o.loop),
                                      make_estimator(o.method, o.loop.estimator));
}

// ---- rows ----

template <typename Options, typename From, typename Make>
AlgorithmRow row(std::string name, std::string summary, Family family, From from, Make make,
                 const std::vector<std::string>& without = {}) {
  const OwnOptions own = OwnOptions::of<Options>(without);
  return {.name = std::move(name),
          .summary = std::move(summary),
          .family = family,
          .options = own,
          .make = [=](const Settings& s) -> Made { return make(from(s)); },
          .make_with = [=](const NamedWords& given) -> Made {
            return make(*static_cast<const Options*>(own.with(given).get()));
          }};
}
template <typename Rule, typename Options>
AlgorithmRow row(std::string name, std::string summary, Family family, Options (*from)(const Settings&)) {
  return row<Options>(std::move(name), std::move(summary), family, from,
                      [](const Options& o) -> Made { return std::make_unique<Rule>(o); });
}
AlgorithmRow with_fixed_ratios(AlgorithmRow row) {
  row.fixed_ratios = true;
  return row;
}
// An algorithm of which the options name a kind that the row fixes.
AlgorithmRow single_loop_row(const std::string& solver, const char* summary, const char* unread) {
  return with_fixed_ratios(row<SingleLoopOptions>(
      "single-loop-" + solver, summary, Family::stochastic,
      [=](const Settings& s) { return single_loop(solver, s); },
      [=](SingleLoopOptions o) -> Made {
        o.solver = solver;
        return std::make_unique<SingleLoop>(o);
      },
      {unread}));
}
AlgorithmRow first_order_darts_row() {
  return row<DartsOptions>("darts-first-order", "DARTS with df/dx only: no derivative through w",
                           Family::stochastic, first_order_darts,
                           [](DartsOptions o) -> Made {
                             o.first_order = true;
                             return std::make_unique<Darts>(o);
                           },
                           {"difference_cross", "difference_step"});
}

std::vector<AlgorithmRow> make_rows() {
  return {
      row<AnyDoubleLoopOptions>("double-loop", "T steps and any estimator (--method), warm-started",
                                Family::warm, any_double_loop, make_any_double_loop),
      row<DoubleLoopWith<NoOptions>>("reverse", "back-propagation through T steps from the first w",
                                     Family::cold, unrolled,
                                     double_loop<Reverse, NoOptions>("reverse", Starts::cold)),
      row<DoubleLoopWith<TruncatedOptions>>(
          "krmd", "K-RMD: back-propagation through the last K of T steps from the first w", Family::cold,
          truncated, double_loop<Truncated, TruncatedOptions>("krmd", Starts::cold)),
      row<DoubleLoopWith<NoOptions>>("itd", "ITD-BiO: back-propagation through T steps, w warm-started",
                                     Family::warm, unrolled,
                                     double_loop<Reverse, NoOptions>("itd", Starts::warm_inner)),
      row<DoubleLoopWith<KrylovOptions>>(
          "aid-cg", "AID-BiO: T steps and CG, w and v warm-started", Family::warm, krylov,
          double_loop<ConjugateGradientEstimator, KrylovOptions>("aid-cg", Starts::warm_both)),
      row<DoubleLoopWith<FixedPointEstimatorOptions>>(
          "aid-fp", "AID-BiO with a fixed point in place of CG", Family::warm, fixed_point,
          double_loop<FixedPointEstimator, FixedPointEstimatorOptions>("aid-fp", Starts::warm_both)),
      row<GrowingLoopOptions>("aid-increasing",
                              "AID-BiO with T growing like the fourth root of the iteration", Family::warm,
                              growing, make_growing),
      row<DoubleLoopWith<NeumannEstimatorOptions>>(
          "idarts", "iDARTS: T steps, w warm-started, and a Neumann series", Family::warm, neumann,
          double_loop<NeumannEstimator, NeumannEstimatorOptions>("idarts", Starts::warm_inner)),
      row<Darts>("darts",
                 "DARTS: x along the derivative of one virtual step, then that step of w at the new x",
                 Family::stochastic, darts),
      first_order_darts_row(),
      row<Stocbio>("stocbio", "stocBiO: T steps and a Neumann series with its own batch for every product",
                   Family::stochastic, stocbio),
      row<Bsa>("bsa", "T steps on single examples and one random summand of a Neumann series",
               Family::stochastic, bsa),
      row<Ttsa>("ttsa", "BSA's hypergradient, one inner step, and two time scales", Family::stochastic, ttsa),
      row<Hoag>("hoag", "inner problem (L-BFGS) and CG to shrinking tolerances, and an adaptive outer step",
                Family::warm, hoag),
      with_fixed_ratios(row<Fsla>("fsla", "FSLA: x, w and v in one step each, x along a STORM momentum",
                                  Family::stochastic, fsla)),
      single_loop_row("neumann", "one inner step, a new Neumann series, and FSLA's momentum",
                      "relative_tolerance"),
      single_loop_row("cg", "one inner step, CG from zero, and FSLA's momentum", "linear_rate"),
      with_fixed_ratios(row<StormDoubleLoop>(
          "storm-double-loop", "T steps from the first w, any estimator (--method), and FSLA's momentum",
          Family::cold, storm_double_loop)),
      row<Soba>("soba", "inner variable, linear system and x in one step together", Family::stochastic,
                one_step_each<SobaOptions>),
      row<Saba>("saba", "SOBA with SAGA's memory of every block of examples", Family::stochastic,
                one_step_each<SabaOptions>),
      row<MaSoba>("ma-soba", "SOBA with x moved along a moving average", Family::stochastic, ma_soba),
      row<Stable>("stable", "w follows x's move, H and C as matrices along the run; few inner variables",
                  Family::stochastic, stable),
      row<Amigo>("amigo", "T steps of w and K of the linear system, both stochastic and warm-started",
                 Family::stochastic, amigo),
      row<Sustain>("sustain", "recursive momentum on w and x, one drawn summand of a Neumann series",
                   Family::stochastic, sustain),
      row<Mrbo>("mrbo", "recursive momentum on w and x, a Neumann series", Family::stochastic, mrbo),
      row<Vrbo>("vrbo", "SPIDER on w and x with periodic large batches, a Neumann series", Family::stochastic,
                vrbo),
      row<F2sa>("f2sa", "a growing penalty in place of second derivatives", Family::stochastic, f2sa),
      row<Bome>("bome", "descent on f that lowers the inner gap, without second derivatives",
                Family::stochastic, bome),
  };
}

}  // namespace

const std::vector<AlgorithmRow>& algorithm_rows() {
  static const std::vector<AlgorithmRow> rows = make_rows();
  return rows;
}

const AlgorithmRow& find_algorithm(const std::string& name) {
  std::vector<std::string> names;
  for (const AlgorithmRow& row : algorithm_rows()) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  refuse_unknown("algorithm", name, names);
}

std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const AlgorithmSettings& settings) {
  const AlgorithmRow& row = find_algorithm(name);
  if (settings.with_bound && !row.options.has("error_bound")) {
    throw std::invalid_argument(
        fmt::format("algorithm '{}' has no error bound: only double loops, whose direction comes from one "
                    "estimator, have one",
                    name));
  }
  return row.make(settings);
}

std::unique_ptr<Algorithm> make_algorithm_with(const std::string& name, const NamedWords& given) {
  return find_algorithm(name).make_with(given);
}

}  // namespace bilevel
