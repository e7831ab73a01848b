#include "bilevel/algorithms/registry.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "bilevel/algorithms/amigo.h"
#include "bilevel/algorithms/bome.h"
#include "bilevel/algorithms/double_loop.h"
#include "bilevel/algorithms/f2sa.h"
#include "bilevel/algorithms/ma_soba.h"
#include "bilevel/algorithms/mrbo.h"
#include "bilevel/algorithms/saba.h"
#include "bilevel/algorithms/soba.h"
#include "bilevel/algorithms/sustain.h"
#include "bilevel/algorithms/vrbo.h"

namespace bilevel {
namespace {

using Made = std::unique_ptr<Algorithm>;
using Settings = AlgorithmSettings;

enum class Starts { cold, warm_inner, warm_both };

Made double_loop(const std::string& name, const std::string& method, Starts starts, const Settings& s) {
  DoubleLoopOptions options{.name = name, .inner = s.inner, .outer = s.outer};
  options.warm_start_inner = starts != Starts::cold;
  options.warm_start_linear = starts == Starts::warm_both;
  EstimatorSettings hypergradient = s.hypergradient;
  if (hypergradient.series_rate == 0) hypergradient.series_rate = s.linear_rate;
  return std::make_unique<DoubleLoop>(options, make_estimator(method, hypergradient));
}

Made aid_increasing(const Settings& s) {
  DoubleLoopOptions options{.name = "aid-increasing", .inner = s.inner, .outer = s.outer};
  options.growth = s.growth > 0 ? s.growth : static_cast<double>(s.inner.steps);
  return std::make_unique<DoubleLoop>(options, make_estimator("cg", s.hypergradient));
}

double series_rate(const Settings& s) {
  return s.hypergradient.series_rate > 0 ? s.hypergradient.series_rate : s.linear_rate;
}

RecursiveMomentumOptions momentum(const Settings& s) {
  return {.inner_rate = s.inner.rate,
          .series_rate = series_rate(s),
          .averaging = s.averaging,
          .outer = s.outer,
          .curvature = s.hypergradient.curvature};
}

Made saba(const Settings& s) {
  return std::make_unique<Saba>(
      SabaOptions{.inner_rate = s.inner.rate, .linear_rate = s.linear_rate, .outer = s.outer});
}

Made ma_soba(const Settings& s) {
  return std::make_unique<MaSoba>(MaSobaOptions{
      .inner_rate = s.inner.rate, .linear_rate = s.linear_rate, .averaging = s.averaging, .outer = s.outer});
}

Made amigo(const Settings& s) {
  return std::make_unique<Amigo>(AmigoOptions{.inner_steps = s.inner.steps,
                                              .linear_steps = s.hypergradient.terms,
                                              .inner_rate = s.inner.rate,
                                              .linear_rate = series_rate(s),
                                              .outer = s.outer,
                                              .curvature = s.hypergradient.curvature});
}

Made vrbo(const Settings& s) {
  return std::make_unique<Vrbo>(VrboOptions{.inner_steps = s.inner.steps,
                                            .period = s.period,
                                            .large_batch = s.large_batch,
                                            .terms = s.hypergradient.terms,
                                            .inner_rate = s.inner.rate,
                                            .series_rate = series_rate(s),
                                            .outer = s.outer,
                                            .curvature = s.hypergradient.curvature});
}

Made f2sa(const Settings& s) {
  return std::make_unique<F2sa>(F2saOptions{.inner_steps = s.inner.steps,
                                            .inner_rate = s.inner.rate,
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

}  // namespace

const std::vector<AlgorithmRow>& algorithm_rows() {
  static const std::vector<AlgorithmRow> rows = {
      {"double-loop", "T steps and any hypergradient (--method), warm-started",
       [](const Settings& s) { return double_loop("double-loop", s.method, Starts::warm_both, s); }},
      {"reverse", "back-propagation through T steps from the first w",
       [](const Settings& s) { return double_loop("reverse", "reverse", Starts::cold, s); }},
      {"krmd", "K-RMD: back-propagation through the last K of T steps from the first w",
       [](const Settings& s) { return double_loop("krmd", "truncated", Starts::cold, s); }},
      {"itd", "ITD-BiO: back-propagation through T steps, w warm-started",
       [](const Settings& s) { return double_loop("itd", "reverse", Starts::warm_inner, s); }},
      {"aid-cg", "AID-BiO: T steps and CG, w and v warm-started",
       [](const Settings& s) { return double_loop("aid-cg", "cg", Starts::warm_both, s); }},
      {"aid-fp", "AID-BiO with a fixed point in place of CG",
       [](const Settings& s) { return double_loop("aid-fp", "fixed-point", Starts::warm_both, s); }},
      {"aid-increasing", "AID-BiO with T growing like the fourth root of the iteration", aid_increasing},
      {"idarts", "iDARTS: T steps that persist and a Neumann series",
       [](const Settings& s) { return double_loop("idarts", "neumann", Starts::warm_inner, s); }},
      {"soba", "inner variable, linear system and x in one step together",
       [](const Settings& s) -> Made {
         return std::make_unique<Soba>(
             SobaOptions{.inner_rate = s.inner.rate, .linear_rate = s.linear_rate, .outer = s.outer});
       }},
      {"saba", "SOBA with SAGA's memory of every block of the sets", saba},
      {"ma-soba", "SOBA with x along a moving average", ma_soba},
      {"amigo", "T steps and K of the linear system, both stochastic and warm-started", amigo},
      {"sustain", "recursive momentum on w and x, one drawn summand of a Neumann series",
       [](const Settings& s) -> Made {
         return std::make_unique<Sustain>(
             SustainOptions{.terms = s.hypergradient.terms, .momentum = momentum(s)});
       }},
      {"mrbo", "recursive momentum on w and x, a Neumann series",
       [](const Settings& s) -> Made {
         return std::make_unique<Mrbo>(MrboOptions{.terms = s.hypergradient.terms, .momentum = momentum(s)});
       }},
      {"vrbo", "SPIDER on w and x with periodic large batches, a Neumann series", vrbo},
      {"f2sa", "a penalty that grows in place of second derivatives", f2sa},
      {"bome", "descent on f that lowers the inner gap, without second derivatives", bome},
  };
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
  return find_algorithm(name).make(settings);
}

}  // namespace bilevel
