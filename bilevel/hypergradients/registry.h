#pragma once
// The estimators by the names of the literature, for programs that take the name from a user.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/fields/own_options.h"
#include "bilevel/hypergradients/estimator.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

// What a user gave before it was known for which estimator: the options of all of them. A row takes from it
// what its own options have.
struct EstimatorSettings {
  int64_t terms = 10;      // Hessian products of neumann, steps of cg, minres, fixed-point, rank of nystrom
  int64_t truncate = 10;   // steps that truncated keeps
  double linear_rate = 0;  // of neumann and fixed-point; 0 = the inner loop's last rate
  double relative_tolerance = 0;     // of cg and minres; 0 = all the steps
  int64_t byte_budget = 64'000'000;  // of reverse-binomial
  uint64_t seed = 0;                 // of nystrom's directions
  CurvatureOptions curvature;        // of the implicit ones; its cross difference also of one-step, truncated
  static const Fields<EstimatorSettings>& fields();
};

struct EstimatorRow {
  std::string name;
  std::string summary;
  OwnOptions options;  // of its own struct, such as KrylovOptions
  std::function<std::unique_ptr<HypergradientEstimator>(const EstimatorSettings&)> make;
  // From its own options by name; those that are not given have their defaults. Throws std::invalid_argument.
  std::function<std::unique_ptr<HypergradientEstimator>(const NamedWords& given)> make_with;
};
const std::vector<EstimatorRow>& estimator_rows();
const EstimatorRow& find_estimator(
    const std::string& name);  // throws std::invalid_argument with the list of names
std::unique_ptr<HypergradientEstimator> make_estimator(const std::string& name,
                                                       const EstimatorSettings& settings);
// {{"terms", {"5"}}, {"damping", {"0.1"}}}
std::unique_ptr<HypergradientEstimator> make_estimator_with(const std::string& name, const NamedWords& given);

}  // namespace bilevel
