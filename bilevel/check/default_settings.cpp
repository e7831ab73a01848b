#include "bilevel/check/default_settings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace bilevel {
namespace {

constexpr int64_t warm_steps = 10;

constexpr std::array<std::string_view, 13> one_step_rules{"darts",
                                                          "darts-first-order",
                                                          "ttsa",
                                                          "fsla",
                                                          "single-loop-neumann",
                                                          "single-loop-cg",
                                                          "soba",
                                                          "saba",
                                                          "ma-soba",
                                                          "sustain",
                                                          "mrbo",
                                                          "bome",
                                                          "stable"};

}  // namespace

AlgorithmSettings default_settings(const NamedProblem& problem, const AlgorithmRow& row) {
  AlgorithmSettings settings;
  settings.inner.steps = row.family == Family::cold ? problem.inner_steps : warm_steps;
  settings.inner.rate = problem.inner_rate;
  settings.outer.optimizer = "adam";
  settings.outer.rate = problem.outer_rate;
  const bool one_step =
      std::find(one_step_rules.begin(), one_step_rules.end(), row.name) != one_step_rules.end();
  if (one_step) settings.outer.rate /= warm_steps;
  settings.joint_rate = 0.1 * problem.inner_rate;
  return settings;
}

}  // namespace bilevel
