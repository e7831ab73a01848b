#pragma once
// Which of the settings that all algorithms share (AlgorithmSettings, registry.h) a rule reads. One that it
// does not read would be accepted and change nothing, so every command that takes settings from a user asks
// here and refuses it by name. tests/algorithms/options_test.cpp compares what the rows of the registry claim
// with what changes a run's result.

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace bilevel {

struct AlgorithmRow;
struct AlgorithmSettings;

// In the order of the fields of AlgorithmSettings.
enum class AlgorithmOption {
  inner_steps,
  inner_rate,
  inner_optimizer,
  inner_momentum,
  inner_clip,
  inner_schedule,
  inner_batch,
  outer_rate,
  outer_optimizer,
  outer_momentum,
  outer_schedule,
  outer_batch,
  method,
  terms,
  truncate,
  linear_rate,
  linear_schedule,
  damping,
  curvature,
  difference_cross,
  error_bound,
  growth,
  strong_convexity,
  hessian_batch,
  momentum_decay,
  averaging,
  period,
  large_batch,
  penalty,
  penalty_growth,
  joint_rate,
  barrier,
};
using AlgorithmOptionSet = std::set<AlgorithmOption>;

const std::vector<AlgorithmOption>& algorithm_options();  // all of them, in the order above
std::string_view name_of(AlgorithmOption option);         // as on a command line, without the dashes
std::string field_of(AlgorithmOption option);             // inner_rate

// What a rule reads with these settings: its row's options, without those that another setting turns off. Of
// double-loop's those of its method; a momentum only of an optimiser that has one.
AlgorithmOptionSet options_read(const AlgorithmRow& row, const AlgorithmSettings& settings);

// Throws OptionError, with the option's name, its value where one is given and the algorithms that
// read it, where none of these reads the option.
void require_read(const std::vector<std::string>& algorithms, const AlgorithmSettings& settings,
                  AlgorithmOption option, const std::string& value = "");

}  // namespace bilevel
