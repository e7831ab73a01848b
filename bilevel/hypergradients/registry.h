#pragma once
// The estimators by the names of the literature, for programs that take the name from a user.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bilevel/hypergradients/estimator.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

// One set of settings for all of them; each estimator takes what it knows.
struct EstimatorSettings {
  int64_t terms = 10;      // Hessian products of neumann, steps of cg, minres, fixed-point, rank of nystrom
  int64_t truncate = 10;   // steps that truncated keeps
  double linear_rate = 0;  // of neumann and fixed-point; 0 = the inner loop's last rate
  double relative_tolerance = 0;     // of cg and minres; 0 = all the steps
  int64_t byte_budget = 64'000'000;  // of reverse-binomial
  uint64_t seed = 0;                 // of nystrom's directions
  CurvatureOptions curvature;        // of the implicit ones; its cross difference also of one-step, truncated
};

// The settings that decide an estimate.
enum class EstimatorOption {
  terms,
  truncate,
  linear_rate,
  relative_tolerance,
  byte_budget,
  seed,
  damping,
  curvature,
  difference_hessian,
  difference_cross,
};

struct EstimatorRow {
  std::string name;
  std::string summary;
  std::set<EstimatorOption> reads;  // which settings change its estimate
  std::unique_ptr<HypergradientEstimator> (*make)(const EstimatorSettings&);
};
const std::vector<EstimatorRow>& estimator_rows();
const EstimatorRow& find_estimator(
    const std::string& name);  // throws std::invalid_argument with the list of names
std::unique_ptr<HypergradientEstimator> make_estimator(const std::string& name,
                                                       const EstimatorSettings& settings);

}  // namespace bilevel
