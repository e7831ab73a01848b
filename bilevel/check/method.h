#pragma once
// What a table of estimators has a row for: one of the registry, made with the settings at hand, or one of a
// user's own, taken as it is. Internal to check/.

#include <memory>
#include <string>
#include <vector>

#include "bilevel/hypergradients/registry.h"

namespace bilevel {

struct Method {
  std::string name;
  bool implicit = false;                                   // HypergradientEstimator::implicit
  EstimatorTraits traits = {};                             // the same of these; their rate is the settings'
  bool has_terms = false;                                  // the settings decide its K
  std::shared_ptr<const HypergradientEstimator> own = {};  // null = of the registry

  std::shared_ptr<const HypergradientEstimator> make(const EstimatorSettings& settings) const {
    return own ? own : make_estimator(name, settings);
  }
};

Method registry_method(const std::string& name);  // throws std::invalid_argument with the list of names

// The named ones, then the own ones. Throws std::invalid_argument where an own one is null or its name stands
// in another row.
std::vector<Method> all_methods(const std::vector<std::string>& names, const EstimatorList& own);
std::vector<std::string> registry_names();

}  // namespace bilevel
