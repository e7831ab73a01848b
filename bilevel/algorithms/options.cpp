#include "bilevel/algorithms/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "bilevel/algorithms/registry.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {
namespace {

using Option = AlgorithmOption;

// In the order of the enumeration.
constexpr std::array<std::string_view, 32> option_names{
    "inner-steps",    "inner-rate",      "inner-optimizer",  "inner-momentum",  "inner-clip",
    "inner-schedule", "inner-batch",     "outer-rate",       "outer-optimizer", "outer-momentum",
    "outer-schedule", "outer-batch",     "method",           "terms",           "truncate",
    "linear-rate",    "linear-schedule", "damping",          "curvature",       "difference-cross",
    "error-bound",    "growth",          "strong-convexity", "hessian-batch",   "momentum-decay",
    "averaging",      "period",          "large-batch",      "penalty",         "penalty-growth",
    "joint-rate",     "barrier"};

// The options of double-loop that are its estimator's.
struct OfEstimator {
  Option option;
  EstimatorOption estimator;
};
constexpr std::array<OfEstimator, 6> of_estimators{
    {{Option::terms, EstimatorOption::terms},
     {Option::truncate, EstimatorOption::truncate},
     {Option::linear_rate, EstimatorOption::linear_rate},
     {Option::damping, EstimatorOption::damping},
     {Option::curvature, EstimatorOption::curvature},
     {Option::difference_cross, EstimatorOption::difference_cross}}};

bool has_inner_momentum(const InnerOptions& inner) {
  return inner.optimizer == "heavy-ball" || inner.optimizer == "nesterov";
}

// What this setting would have to be for the algorithm to read the option; empty where it never does.
std::string reading_condition(const AlgorithmRow& row, const AlgorithmSettings& s, Option option) {
  if (!row.reads.contains(option)) return "";
  if (option == Option::inner_momentum) {
    return fmt::format("it is of {} and nesterov, not of {}", named("inner_optimizer", "heavy-ball"),
                       s.inner.optimizer);
  }
  if (option == Option::outer_momentum) {
    return fmt::format("it is of {}, not of {}", named("outer_optimizer", "sgd"), s.outer.optimizer);
  }
  if (option == Option::outer_schedule) {
    return fmt::format("with {} all rates of {} fall together, as its paper has it",
                       named("outer_optimizer", "sgd"), row.name);
  }
  if (option == Option::inner_steps) return named("growth") + " sets T here";
  return fmt::format("{} does not read it", named("method", s.method));
}

}  // namespace

const std::vector<AlgorithmOption>& algorithm_options() {
  static const std::vector<Option> all = [] {
    std::vector<Option> made;
    for (size_t i = 0; i < option_names.size(); ++i) made.push_back(static_cast<Option>(i));
    return made;
  }();
  return all;
}

std::string field_of(AlgorithmOption option) {
  std::string field(name_of(option));
  std::replace(field.begin(), field.end(), '-', '_');
  return field;
}

std::string_view name_of(AlgorithmOption option) { return option_names.at(static_cast<size_t>(option)); }

AlgorithmOptionSet options_read(const AlgorithmRow& row, const AlgorithmSettings& s) {
  AlgorithmOptionSet reads = row.reads;
  if (!has_inner_momentum(s.inner)) reads.erase(Option::inner_momentum);
  if (s.outer.optimizer != "sgd") reads.erase(Option::outer_momentum);
  // STORM's rules (storm.h) have one schedule for all their rates.
  if (reads.contains(Option::momentum_decay) && s.outer.optimizer == "sgd") {
    reads.erase(Option::outer_schedule);
  }
  if (reads.contains(Option::growth) && s.growth > 0) reads.erase(Option::inner_steps);
  if (reads.contains(Option::method) && s.method != "auto") {
    const std::set<EstimatorOption>& estimator = find_estimator(s.method).reads;
    for (const OfEstimator& one : of_estimators) {
      if (!estimator.contains(one.estimator)) reads.erase(one.option);
    }
  }
  return reads;
}

void require_read(const std::vector<std::string>& algorithms, const AlgorithmSettings& settings,
                  AlgorithmOption option, const std::string& value) {
  for (const std::string& name : algorithms) {
    if (options_read(find_algorithm(name), settings).contains(option)) return;
  }
  std::vector<std::string> readers;
  for (const AlgorithmRow& row : algorithm_rows()) {
    if (row.reads.contains(option)) readers.push_back(row.name);
  }
  std::string why;
  for (const std::string& name : algorithms) {
    if (why.empty()) why = reading_condition(find_algorithm(name), settings, option);
  }
  if (why.empty()) why = fmt::format("it is of {}", fmt::join(readers, ", "));
  const std::string field = field_of(option);
  throw OptionError(fmt::format("{} changes nothing for {}: {}; leave it out",
                                value.empty() ? named(field) : named(field, value),
                                fmt::join(algorithms, ", "), why));
}

}  // namespace bilevel
