#include "bilevel/check/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace bilevel {

Method registry_method(const std::string& name) {
  const auto estimator = make_estimator(name, {});
  return {.name = name,
          .implicit = estimator->implicit(),
          .traits = estimator->traits(),
          .has_terms = estimator->terms().has_value()};
}

std::vector<Method> all_methods(const std::vector<std::string>& names, const EstimatorList& own) {
  std::vector<Method> methods;
  for (const std::string& name : names) methods.push_back(registry_method(name));
  for (const auto& estimator : own) {
    if (!estimator) throw std::invalid_argument("own: an estimator is null");
    const std::string name(estimator->name());
    const auto same = [&](const Method& other) { return other.name == name; };
    if (std::any_of(methods.begin(), methods.end(), same)) {
      throw std::invalid_argument(fmt::format(
          "own: the estimator '{}' has the name of another row: rename it, or leave the other out", name));
    }
    methods.push_back(
        {.name = name, .implicit = estimator->implicit(), .traits = estimator->traits(), .own = estimator});
  }
  return methods;
}

std::vector<std::string> registry_names() {
  std::vector<std::string> names;
  for (const EstimatorRow& row : estimator_rows()) names.push_back(row.name);
  return names;
}

}  // namespace bilevel
