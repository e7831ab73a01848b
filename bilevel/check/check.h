#pragma once
// Every hypergradient estimator on one problem, measured against both references, with what it cost and a
// verdict: which of them can be trusted here, and why the others cannot. Plain data in, plain data out;
// `bilevel check` prints it.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/check/references.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/registry.h"

namespace bilevel {

struct CheckOptions {
  InnerOptions inner;
  std::vector<std::string> methods;  // of the registry; empty = all of them
  EstimatorList own = {};            // a user's own, in the rows below those; each with a name of its own
  EstimatorSettings settings;
  bool terms_given = false;   // false: cg and minres run to rounding instead of settings.terms steps
  bool budget_given = false;  // false: reverse-binomial gets room for about log2(T) states
  std::optional<std::pair<int64_t, int64_t>> sweep;  // of K, for the estimators that have one
  bool linear_rate_auto = false;  // 1 / the largest curvature at the final iterate, not settings.linear_rate
  bool reference_at_iterate = false;  // the implicit reference where the inner loop ends, not at the solution
  uint64_t seed = 0;                  // of the starting points
  double patience = 60;  // seconds; an estimator not asked for by name that would take longer is not run
  std::string problem = "own problem";  // its name in the result
  bool constant_curvature = false;  // the problem's H does not depend on w: an unsafe rate is refused at once
  void validate() const;
};

// NaN stands for "there is none" in every number here.
struct MethodRow {
  std::string name;
  bool implicit = false;  // what it is an estimate of (HypergradientEstimator::implicit)
  bool own = false;       // not of the registry
  EstimatorTraits traits;
  std::optional<int64_t> terms;  // K, for the estimators that have one
  Hypergradient hypergradient;   // value undefined where it was not run
  double error_implicit, error_unrolled, cosine_implicit, cosine_unrolled;
  // hypergradient.bound over the implicit reference's norm: what error_implicit cannot exceed where it is
  // rigorous.
  double error_bound;
  bool vacuous = false;  // that bound is as long as the estimate itself
  // Sweep only, what K alone leaves: the relative distance from the exact inverse of the same curvature at
  // the final iterate, of truncated from the unrolled reference; and what the theory says of it
  // (check/bounds.h).
  double own_error, theory;
  bool trusted = false;  // right for what the estimator is an estimate of
  std::string why;       // of the verdict
};

struct CheckResult {
  std::string problem;
  int64_t inner_size = 0, outer_size = 0;
  InnerOptions inner;              // as run
  double inner_rate = 0;           // of the last step: a learned one shows here
  double inner_gradient_norm = 0;  // at the final iterate
  CurvatureOptions curvature;      // of the implicit estimators and of their reference
  double linear_rate = 0;          // of neumann and fixed-point
  double series_contraction = 0;   // of one of their terms
  double initial_gradient_norm = 0;
  OracleCounts inner_counts;
  double inner_seconds = 0;
  Spectrum spectrum;             // of the curvature at the final iterate
  double largest_safe_rate = 0;  // of this optimiser on that spectrum
  double contraction = 0;        // of one step there; NaN for other optimisers than gradient descent
  ImplicitReference implicit;
  Reference unrolled;
  std::vector<MethodRow> methods;
  std::vector<MethodRow> sweep;      // one row per estimator and K
  double trust_below = 0;            // the relative error up to which an estimator is called right
  std::vector<std::string> verdict;  // sentences, the most important first
};

// Throws std::invalid_argument where the rate cannot work (constant curvature), and NotFiniteError where the
// inner loop diverges; both name the largest safe rate. `progress` receives what is being done.
CheckResult check_problem(const Problem& problem, const CheckOptions& options,
                          const std::function<void(const std::string&)>& progress = {});
// The same, with the name and the facts of a problem of the registry in place of the options'.
CheckResult check_problem(const NamedProblem& problem, const CheckOptions& options,
                          const std::function<void(const std::string&)>& progress = {});

}  // namespace bilevel
