#include "bilevel/algorithms/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bilevel/algorithms/registry.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {
namespace {

bool has_inner_momentum(const InnerOptions& inner) {
  return inner.optimizer == "heavy-ball" || inner.optimizer == "nesterov";
}

// What this setting would have to be for the algorithm to read the option; empty where it never does.
std::string reading_condition(const AlgorithmRow& row, const AlgorithmSettings& s,
                              const std::string& option) {
  if (!row.options.has(option)) return "";
  if (option == "inner_momentum") {
    return fmt::format("it is of {} and nesterov, not of {}", named("inner_optimizer", "heavy-ball"),
                       s.inner.optimizer);
  }
  if (option == "outer_momentum") {
    return fmt::format("it is of {}, not of {}", named("outer_optimizer", "sgd"), s.outer.optimizer);
  }
  if (option == "outer_schedule") {
    return fmt::format("with {} all rates of {} fall together, as its paper has it",
                       named("outer_optimizer", "sgd"), row.name);
  }
  if (option == "inner_steps") return named("growth") + " sets T here";
  return fmt::format("{} does not read it", named("method", s.method));
}

}  // namespace

const std::vector<std::string>& algorithm_options() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const Field& field : AlgorithmSettings::fields().rows()) names.push_back(field.name);
    return names;
  }();
  return all;
}

std::set<std::string> options_read(const AlgorithmRow& row, const AlgorithmSettings& s) {
  std::set<std::string> reads;
  for (const Field& field : row.options.fields()) reads.insert(field.name);
  if (!has_inner_momentum(s.inner)) reads.erase("inner_momentum");
  if (s.outer.optimizer != "sgd") reads.erase("outer_momentum");
  // STORM's rules (storm.h) have one schedule for all their rates.
  if (reads.contains("momentum_decay") && s.outer.optimizer == "sgd") {
    reads.erase("outer_schedule");
  }
  if (reads.contains("growth") && s.growth > 0) reads.erase("inner_steps");
  if (reads.contains("method") && s.method != "auto") {
    const OwnOptions& of_method = find_estimator(s.method).options;
    for (const Field& field : EstimatorSettings::fields().rows()) {
      if (!of_method.has(field.name)) reads.erase(field.name);
    }
  }
  return reads;
}

void require_read(const std::vector<std::string>& algorithms, const AlgorithmSettings& settings,
                  const std::string& option, const std::string& value) {
  for (const std::string& name : algorithms) {
    if (options_read(find_algorithm(name), settings).contains(option)) return;
  }
  std::vector<std::string> readers;
  for (const AlgorithmRow& row : algorithm_rows()) {
    if (row.options.has(option)) readers.push_back(row.name);
  }
  std::string why;
  for (const std::string& name : algorithms) {
    if (why.empty()) why = reading_condition(find_algorithm(name), settings, option);
  }
  if (why.empty()) why = fmt::format("it is of {}", fmt::join(readers, ", "));
  throw OptionError(fmt::format("{} changes nothing for {}: {}; leave it out",
                                value.empty() ? named(option) : named(option, value),
                                fmt::join(algorithms, ", "), why));
}

}  // namespace bilevel
