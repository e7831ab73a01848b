#include "bilevel/algorithms/registry.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "bilevel/algorithms/amigo.h"
#include "bilevel/algorithms/bome.h"
#include "bilevel/algorithms/bsa.h"
#include "bilevel/algorithms/darts.h"
#include "bilevel/algorithms/double_loop.h"
#include "bilevel/algorithms/f2sa.h"
#include "bilevel/algorithms/fsla.h"
#include "bilevel/algorithms/ma_soba.h"
#include "bilevel/algorithms/mrbo.h"
#include "bilevel/algorithms/saba.h"
#include "bilevel/algorithms/single_loop.h"
#include "bilevel/algorithms/soba.h"
#include "bilevel/algorithms/stocbio.h"
#include "bilevel/algorithms/sustain.h"
#include "bilevel/algorithms/ttsa.h"
#include "bilevel/algorithms/vrbo.h"

namespace bilevel {
namespace {

using Made = std::unique_ptr<Algorithm>;
using Settings = AlgorithmSettings;
using Reads = AlgorithmOptionSet;
using Option = AlgorithmOption;

Reads operator+(Reads a, const Reads& b) {
  a.insert(b.begin(), b.end());
  return a;
}
Reads operator-(Reads a, const Reads& b) {
  for (const Option option : b) a.erase(option);
  return a;
}

enum class Starts { cold, warm_inner, warm_both };

Made double_loop(const std::string& name, const std::string& method, Starts starts, const Settings& s) {
  DoubleLoopOptions options{.name = name, .inner = s.inner, .outer = s.outer};
  options.warm_start_inner = starts != Starts::cold;
  options.warm_start_linear = starts == Starts::warm_both;
  options.one_batch = name == "idarts";
  options.with_bound = s.with_bound;
  EstimatorSettings hypergradient = s.hypergradient;
  if (hypergradient.linear_rate == 0) hypergradient.linear_rate = s.linear_rate;
  return std::make_unique<DoubleLoop>(options, make_estimator(method, hypergradient));
}

Made aid_increasing(const Settings& s) {
  DoubleLoopOptions options{.name = "aid-increasing", .inner = s.inner, .outer = s.outer};
  options.growth = s.growth > 0 ? s.growth : static_cast<double>(s.inner.steps);
  options.with_bound = s.with_bound;
  return std::make_unique<DoubleLoop>(options, make_estimator("cg", s.hypergradient));
}

Made darts(bool first_order, const Settings& s) {
  return std::make_unique<Darts>(DartsOptions{.inner = s.inner,
                                              .outer = s.outer,
                                              .first_order = first_order,
                                              .curvature = s.hypergradient.curvature});
}

// The rate of a rule's own series; the estimators' setting goes first, as in double loops.
double linear_rate(const Settings& s) {
  return s.hypergradient.linear_rate > 0 ? s.hypergradient.linear_rate : s.linear_rate;
}

Made stocbio(const Settings& s) {
  StocbioOptions options{.inner = s.inner, .outer = s.outer};
  options.terms = s.hypergradient.terms;
  options.linear_rate = linear_rate(s);
  options.strong_convexity = s.strong_convexity;
  options.hessian_batch = s.hessian_batch;
  options.curvature = s.hypergradient.curvature;
  return std::make_unique<Stocbio>(options);
}

RandomizedSeriesOptions randomized(const Settings& s) {
  return {.terms = s.hypergradient.terms,
          .rate = linear_rate(s),
          .single_sample = s.single_sample,
          .curvature = s.hypergradient.curvature};
}

Made hoag(const Settings& s) {
  HoagOptions options{.inner_rate = s.inner.rate, .outer = s.outer};
  options.tolerance = s.tolerance;
  options.adaptive = s.adaptive_step;
  options.curvature = s.hypergradient.curvature;
  return std::make_unique<Hoag>(options);
}

StormOptions storm(const Settings& s) {
  return {.inner_rate = s.inner.rate, .momentum_decay = s.momentum_decay, .outer = s.outer};
}

Made fsla(const Settings& s) {
  FslaOptions options{.storm = storm(s)};
  options.linear_rate = s.linear_rate;
  options.v_at = s.v_at;
  options.curvature = s.hypergradient.curvature;
  return std::make_unique<Fsla>(options);
}

Made single_loop(const std::string& solver, const Settings& s) {
  SingleLoopOptions options{.storm = storm(s), .solver = solver};
  options.terms = s.hypergradient.terms;
  options.linear_rate = linear_rate(s);
  options.relative_tolerance = s.hypergradient.relative_tolerance;
  options.curvature = s.hypergradient.curvature;
  return std::make_unique<SingleLoop>(options);
}

RecursiveMomentumOptions momentum(const Settings& s) {
  return {.inner_rate = s.inner.rate,
          .linear_rate = linear_rate(s),
          .averaging = s.averaging,
          .outer = s.outer,
          .curvature = s.hypergradient.curvature};
}

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

Made ma_soba(const Settings& s) {
  MaSobaOptions options = one_step_each<MaSobaOptions>(s);
  options.averaging = s.averaging;
  return std::make_unique<MaSoba>(options);
}

Made amigo(const Settings& s) {
  return std::make_unique<Amigo>(AmigoOptions{.inner = s.inner,
                                              .linear_steps = s.hypergradient.terms,
                                              .linear_rate = linear_rate(s),
                                              .linear_schedule = s.linear_schedule,
                                              .outer = s.outer,
                                              .curvature = s.hypergradient.curvature});
}

Made vrbo(const Settings& s) {
  return std::make_unique<Vrbo>(VrboOptions{.inner_steps = s.inner.steps,
                                            .period = s.period,
                                            .large_batch = s.large_batch,
                                            .terms = s.hypergradient.terms,
                                            .inner_rate = s.inner.rate,
                                            .linear_rate = linear_rate(s),
                                            .outer = s.outer,
                                            .curvature = s.hypergradient.curvature});
}

Made f2sa(const Settings& s) {
  return std::make_unique<F2sa>(F2saOptions{.inner_steps = s.inner.steps,
                                            .inner_rate = s.inner.rate,
                                            .schedule = s.inner.schedule,
                                            .penalty = s.penalty,
                                            .growth = s.penalty_growth,
                                            .outer = s.outer});
}

Made bome(const Settings& s) {
  return std::make_unique<Bome>(BomeOptions{.inner_steps = s.inner.steps,
                                            .inner_rate = s.inner.rate,
                                            .joint_rate = s.joint_rate,
                                            .barrier = s.barrier,
                                            .outer = s.outer});
}

std::vector<AlgorithmRow> make_rows() {
  const Reads outer{Option::outer_rate,     Option::outer_optimizer, Option::outer_momentum,
                    Option::outer_schedule, Option::inner_batch,     Option::outer_batch};
  const Reads step{Option::inner_rate, Option::inner_optimizer, Option::inner_momentum, Option::inner_clip,
                   Option::inner_schedule};
  const Reads loop = outer + step + Reads{Option::inner_steps};
  const Reads matrix{Option::damping, Option::curvature};
  const Reads system = matrix + Reads{Option::difference_cross};
  const Reads series = system + Reads{Option::terms, Option::linear_rate};
  const Reads unrolled = loop + Reads{Option::error_bound};
  const Reads implicit = unrolled + system + Reads{Option::terms};
  // One plain step of w: its rate, and the outer steps.
  const Reads plain = outer + Reads{Option::inner_rate};
  const Reads soba =
      plain + matrix + Reads{Option::inner_schedule, Option::linear_rate, Option::linear_schedule};
  const Reads storm = plain + matrix + Reads{Option::momentum_decay};
  const Reads recursive = plain + series + Reads{Option::averaging};
  return {
      {"double-loop", "T steps and any hypergradient (--method), warm-started", Family::warm,
       implicit + Reads{Option::method, Option::truncate, Option::linear_rate},
       [](const Settings& s) { return double_loop("double-loop", s.method, Starts::warm_both, s); }},
      {"reverse", "back-propagation through T steps from the first w", Family::cold, unrolled,
       [](const Settings& s) { return double_loop("reverse", "reverse", Starts::cold, s); }},
      {"krmd", "K-RMD: back-propagation through the last K of T steps from the first w", Family::cold,
       unrolled + Reads{Option::truncate, Option::difference_cross},
       [](const Settings& s) { return double_loop("krmd", "truncated", Starts::cold, s); }},
      {"itd", "ITD-BiO: back-propagation through T steps, w warm-started", Family::warm, unrolled,
       [](const Settings& s) { return double_loop("itd", "reverse", Starts::warm_inner, s); }},
      {"aid-cg", "AID-BiO: T steps and CG, w and v warm-started", Family::warm, implicit,
       [](const Settings& s) { return double_loop("aid-cg", "cg", Starts::warm_both, s); }},
      {"aid-fp", "AID-BiO with a fixed point in place of CG", Family::warm,
       implicit + Reads{Option::linear_rate},
       [](const Settings& s) { return double_loop("aid-fp", "fixed-point", Starts::warm_both, s); }},
      {"aid-increasing", "AID-BiO with T growing like the fourth root of the iteration", Family::warm,
       implicit + Reads{Option::growth}, aid_increasing},
      {"idarts", "iDARTS: T steps that persist and a Neumann series", Family::warm,
       implicit + Reads{Option::linear_rate},
       [](const Settings& s) { return double_loop("idarts", "neumann", Starts::warm_inner, s); }},
      {"darts", "DARTS: x along the derivative of one virtual step, then that step of w at the new x",
       Family::stochastic, outer + step + Reads{Option::difference_cross},
       [](const Settings& s) { return darts(false, s); }},
      {"darts-first-order", "DARTS with df/dx alone: nothing comes through w", Family::stochastic,
       outer + step, [](const Settings& s) { return darts(true, s); }},
      {"stocbio", "stocBiO: T steps and a Neumann series with its own batch for every product",
       Family::stochastic, loop + series + Reads{Option::strong_convexity, Option::hessian_batch}, stocbio},
      {"bsa", "T steps on single examples and one random summand of a Neumann series", Family::stochastic,
       loop + series,
       [](const Settings& s) -> Made {
         return std::make_unique<Bsa>(
             BsaOptions{.inner = s.inner, .outer = s.outer, .series = randomized(s)});
       }},
      {"ttsa", "BSA's hypergradient, one inner step, and two time scales", Family::stochastic,
       outer + step + series - Reads{Option::inner_schedule, Option::outer_schedule},
       [](const Settings& s) -> Made {
         TtsaOptions options{.inner = s.inner, .outer = s.outer};
         options.series = randomized(s);
         return std::make_unique<Ttsa>(options);
       }},
      {"hoag", "inner problem (L-BFGS) and CG to shrinking tolerances, and an adaptive outer step",
       Family::warm, plain + system, hoag},
      {"fsla", "FSLA: x, w and v in one step each, x along a STORM momentum", Family::stochastic,
       storm + Reads{Option::linear_rate}, fsla, true},
      {"single-loop-neumann", "one inner step, a new Neumann series, and FSLA's momentum", Family::stochastic,
       storm + Reads{Option::terms, Option::linear_rate},
       [](const Settings& s) { return single_loop("neumann", s); }, true},
      {"single-loop-cg", "one inner step, CG from zero, and FSLA's momentum", Family::stochastic,
       storm + Reads{Option::terms}, [](const Settings& s) { return single_loop("cg", s); }, true},
      {"soba", "inner variable, linear system and x in one step together", Family::stochastic, soba,
       [](const Settings& s) -> Made { return std::make_unique<Soba>(one_step_each<SobaOptions>(s)); }},
      {"saba", "SOBA with SAGA's memory of every block of the sets", Family::stochastic, soba,
       [](const Settings& s) -> Made { return std::make_unique<Saba>(one_step_each<SabaOptions>(s)); }},
      {"ma-soba", "SOBA with x along a moving average", Family::stochastic, soba + Reads{Option::averaging},
       ma_soba},
      {"amigo", "T steps and K of the linear system, both stochastic and warm-started", Family::stochastic,
       loop + series + Reads{Option::linear_schedule}, amigo},
      {"sustain", "recursive momentum on w and x, one drawn summand of a Neumann series", Family::stochastic,
       recursive,
       [](const Settings& s) -> Made {
         return std::make_unique<Sustain>(
             SustainOptions{.terms = s.hypergradient.terms, .momentum = momentum(s)});
       }},
      {"mrbo", "recursive momentum on w and x, a Neumann series", Family::stochastic, recursive,
       [](const Settings& s) -> Made {
         return std::make_unique<Mrbo>(MrboOptions{.terms = s.hypergradient.terms, .momentum = momentum(s)});
       }},
      {"vrbo", "SPIDER on w and x with periodic large batches, a Neumann series", Family::stochastic,
       plain + series + Reads{Option::inner_steps, Option::period, Option::large_batch}, vrbo},
      {"f2sa", "a penalty that grows in place of second derivatives", Family::stochastic,
       plain + Reads{Option::inner_steps, Option::inner_schedule, Option::penalty, Option::penalty_growth},
       f2sa},
      {"bome", "descent on f that lowers the inner gap, without second derivatives", Family::stochastic,
       plain + Reads{Option::inner_steps, Option::joint_rate, Option::barrier}, bome},
  };
}

}  // namespace

const std::vector<AlgorithmRow>& algorithm_rows() {
  static const std::vector<AlgorithmRow> rows = make_rows();
  return rows;
}

const AlgorithmRow& find_algorithm(const std::string& name) {
  std::string names;
  for (const AlgorithmRow& row : algorithm_rows()) {
    if (row.name == name) return row;
    names += (names.empty() ? "" : ", ") + row.name;
  }
  throw std::invalid_argument(fmt::format("algorithm '{}' is unknown: choose from {}", name, names));
}

std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const AlgorithmSettings& settings) {
  auto algorithm = find_algorithm(name).make(settings);
  if (settings.with_bound && dynamic_cast<const DoubleLoop*>(algorithm.get()) == nullptr) {
    throw std::invalid_argument(fmt::format(
        "algorithm '{}' has no error bound: double loops have, whose direction is one estimator's", name));
  }
  return algorithm;
}

}  // namespace bilevel
