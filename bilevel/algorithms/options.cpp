#include "bilevel/algorithms/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "bilevel/algorithms/registry.h"
#include "bilevel/fields/option_text.h"

namespace bilevel {
namespace {

bool has_inner_momentum(const InnerOptions& inner) {
  return inner.optimizer == "heavy-ball" || inner.optimizer == "nesterov";
}

// Of an algorithm that would read the option with other settings: what it has no effect with, and what uses
// it.
struct Unread {
  std::string with;
  std::vector<std::string> users = {};
};

std::optional<Unread> unread_by(const AlgorithmRow& row, const AlgorithmSettings& s,
                                const std::string& option) {
  if (!row.options.has(option)) return std::nullopt;
  if (option == "inner_momentum") {
    return Unread{named("inner_optimizer", s.inner.optimizer),
                  {named("inner_optimizer", "heavy-ball"), "nesterov"}};
  }
  if (option == "outer_momentum") {
    return Unread{named("outer_optimizer", s.outer.optimizer), {named("outer_optimizer", "sgd")}};
  }
  if (option == "outer_schedule") {
    return Unread{named("outer_optimizer", "sgd") + ", where all rates fall together, as in the paper"};
  }
  if (option == "inner_steps") return Unread{named("growth") + ", which sets T"};
  Unread of_method{named("method", s.method)};
  for (const EstimatorRow& estimator : estimator_rows()) {
    if (estimator.options.has(option)) of_method.users.push_back(estimator.name);
  }
  return of_method;
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
  const std::string shown = value.empty() ? named(option) : named(option, value);
  for (const std::string& name : algorithms) {
    if (const auto unread = unread_by(find_algorithm(name), settings, option)) {
      const std::string with = fmt::format("{} and {}", fmt::join(algorithms, ", "), unread->with);
      throw OptionError(no_effect(shown, with, unread->users));
    }
  }
  std::vector<std::string> readers;
  for (const AlgorithmRow& row : algorithm_rows()) {
    if (row.options.has(option)) readers.push_back(row.name);
  }
  throw OptionError(no_effect(shown, fmt::format("{}", fmt::join(algorithms, ", ")), readers));
}

}  // namespace bilevel
