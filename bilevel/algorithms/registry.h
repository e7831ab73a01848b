#pragma once
// The algorithms by the names of the literature, for programs that take the name from a user.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/hypergradients/registry.h"

namespace bilevel {

// One set of settings for all of them; each algorithm takes what it knows.
struct AlgorithmSettings {
  InnerOptions inner = {};  // T, rate and optimiser of double loops; single loops take the rate
  OuterOptions outer = {};
  EstimatorSettings hypergradient = {};  // terms: K of series and CG, Q of stocBiO; truncate: K of K-RMD
  std::string method = "cg";             // of double-loop: any estimator
  double growth = 0;                     // of aid-increasing: T_k = ceil(growth (k+1)^(1/4)); 0 = T
  double linear_rate = 0;                // of series and of single-loop rules; 0 = the inner rate
};

// What decides sensible defaults: whether w begins anew in every iteration, goes on where it was, or the rule
// is made for minibatches.
enum class Family { cold, warm, stochastic };

struct AlgorithmRow {
  std::string name;
  std::string summary;
  Family family;
  std::unique_ptr<Algorithm> (*make)(const AlgorithmSettings&);
};
const std::vector<AlgorithmRow>& algorithm_rows();
const AlgorithmRow& find_algorithm(const std::string& name);  // throws std::invalid_argument, with all names
std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const AlgorithmSettings& settings);

}  // namespace bilevel
