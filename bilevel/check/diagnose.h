#pragma once
// What a problem asks of a hypergradient at one point: how its inner curvature looks, how far the inner
// problem is from solved, what every estimator would cost for a target accuracy, and which one to use.
// Numbers are measured against the exact hypergradient where that can be had, and say so where they are not.
// Plain data in, plain data out; `bilevel diagnose` prints it and `--method auto` takes its advice.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/check/inner_plan.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/registry.h"

namespace bilevel {

struct DiagnoseOptions {
  double accuracy = 0.01;  // target: |hypergradient - exact| / |exact|
  InnerOptions inner = {};
  InnerGiven given = {};            // which parts of `inner` the user decided
  EstimatorSettings settings = {};  // terms and truncate: the K whose error is asked for; curvature
  bool curvature_given = false;     // the user decided about kind or damping
  EstimatorList own = {};           // a user's own estimators, each with a row below those of the registry
  // Gradients and products that the search for one estimator's K may take; beyond them K is extrapolated. The
  // references may take up to 32 times as many. Calls and not seconds: advice must not depend on how busy a
  // machine is.
  int64_t calls_per_method = 600;
  Tensor x = {}, w = {};  // the point; undefined = the problem's start
  uint64_t seed = 0;      // of that start
  void validate() const;
};

// NaN stands for "there is none" in every number below.

enum class Basis {
  none,
  measured,      // against the reference, at this K and T
  extrapolated,  // from measured errors by the contraction of a term or step
  bound,         // the theory's, absolute bound over the estimate's own norm: pessimistic
};
std::string_view name_of(Basis basis);

// The inner problem at one point.
struct InnerPoint {
  Spectrum spectrum;         // of the inner Hessian
  double gradient_norm = 0;  // |grad_w g|
  double distance = 0;       // delta = |grad_w g| / mu: w* is not farther; NaN without positive curvature
};

struct UnitSeconds {
  double inner_gradient = 0, outer_gradient = 0, hessian = 0, cross = 0;
};

struct MethodDiagnosis {
  std::string name;
  std::optional<int64_t> asked_terms;  // the K that was asked about, for estimators that have one
  double asked_error = 0;              // with that K and the T below
  Basis asked_basis = Basis::none;
  // What the accuracy needs, or the best that was found where it is out of reach.
  bool reaches = false;
  std::optional<int64_t> terms;
  int64_t inner_steps = 0;  // T
  double error = 0;
  Basis basis = Basis::none;
  double another_error =
      0;                // with a random df/dw of the same length in place of this one; NaN = not measured
  OracleCounts counts;  // of the inner loop and the estimator
  double seconds = 0;   // those calls at the price of one
  int64_t bytes = 0;    // kept beside w, x and the result
  bool usable = true;   // may be recommended where it reaches the accuracy
  std::string note;     // why it is not, or what speaks against it
};

struct Recommendation {
  bool reaches = false;  // the accuracy
  std::string method;
  int64_t terms = 0;  // K: kept steps of truncated, terms elsewhere; 0 where there is none
  bool has_terms = false;
  InnerOptions inner;
  double linear_rate = 0;  // 0 = the inner rate
  CurvatureOptions curvature;
  double error = 0;  // relative, of one hypergradient with just these settings
  Basis basis = Basis::none;
  double another_error = 0;  // with a random df/dw in place of this one: what other x may ask for
  std::string sentence;
};

enum class ReferenceKind {
  none,
  solution,  // the implicit hypergradient at the solved inner problem: the exact one
  iterate,   // the implicit formula with the curvature below where the inner loop ends
  unrolled,  // the derivative through the steps taken: start or rate are learned
};

struct Diagnosis {
  std::string problem;
  int64_t inner_size = 0, outer_size = 0;
  double accuracy = 0;
  InnerPoint start;                    // where it was asked
  InnerPoint end;                      // after `end_steps` inner steps
  std::optional<InnerPoint> solution;  // of the inner problem, where Newton's method found it
  double largest_curvature = 0, smallest_curvature = 0;  // over those points
  bool negative_curvature = false;                       // somewhere the inner loop goes to
  InnerOptions inner;                                    // chosen: optimiser, momentum, rate and T
  double largest_safe_rate = 0, best_rate = 0;
  bool unsafe_rate = false;  // the rate that was given is not below it: nothing is recommended
  double contraction = 0, best_contraction = 0;  // of one step, at the chosen and at the best rate
  int64_t steps_predicted = 0;  // that shrink the start's distance by the accuracy, from the contraction
  int64_t end_steps = 0;   // T of `end` and `inner_error`; an estimator through the steps may need others
  double inner_error = 0;  // what an unsolved inner problem alone costs after them
  Basis inner_basis = Basis::none;
  ReferenceKind reference = ReferenceKind::none;
  std::string reference_why;  // why there is no better one
  CurvatureOptions curvature;
  UnitSeconds unit;
  std::vector<MethodDiagnosis> methods;
  Recommendation recommendation;
  OracleCounts counts;  // of the diagnosis itself
  double seconds = 0;
};

// What there is to know about a problem beside its losses.
struct DiagnosedProblem {
  const Problem* problem = nullptr;
  std::string name;
  int64_t inner_steps = 100;  // T where nothing else decides it
  double inner_rate = 0.1;    // the same
  bool convex = false;
  // The largest inner rate that is right at other x, too; 0 = nothing is known. Where the curvature depends
  // on x, a problem's own rate is it.
  double rate_limit = 0;
  // The largest inner curvature that x may lead to; 0 = not known, taken as `growth` times what is met here.
  double largest_curvature = 0;
  double growth = 2;
  CheckDefaults check = {};
};
DiagnosedProblem diagnosed(const NamedProblem& problem);

// Throws std::invalid_argument on options that cannot be, NotFiniteError where the inner loop diverges.
Diagnosis diagnose(const DiagnosedProblem& problem, const DiagnoseOptions& options,
                   const std::function<void(const std::string&)>& progress = {});

}  // namespace bilevel
