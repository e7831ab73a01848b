#pragma once
// A hypergradient estimator: from an inner trajectory to an estimate of the derivative of f(x, w(x)) in x,
// with what it cost and how it ended. Adding one is a file in this folder and a row in registry.cpp.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/core/batch.h"
#include "bilevel/core/error_bound.h"
#include "bilevel/core/linear_solve.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/tensor.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/hypergradients/traits.h"

namespace bilevel {

template <typename Options>
class Fields;     // fields/fields.h
struct Spectrum;  // core/spectrum.h

struct HypergradientRequest {
  Tensor x;
  const Trajectory& inner;  // may keep more states than the estimator asks for: several can share one
  // Which sample feeds which derivative is the algorithm's choice, so it is said here. Defaults: the full
  // sets.
  Batch outer = {};                 // of grad_x f and grad_w f
  Batch cross = {};                 // of the cross product of implicit estimators
  std::vector<Batch> hessian = {};  // of their Hessian products: none = full, one = for all, K = one for each
  Tensor warm_start = {};           // of the linear system's solution; undefined = zero
  bool with_bound = false;          // a bound on the error, at the price of a few more products
  // Called with t where the state kept before step t is not read any more: whoever owns the trajectory may
  // free it. Without it reverse-binomial cannot stay within its budget. Empty = the states stay.
  std::function<void(int64_t t)> release = {};
};

struct Hypergradient {
  Tensor value;   // of x's size
  Tensor direct;  // df/dx at the final iterate; value - direct is what comes through w
  Status status = Status::not_run;
  Tensor solution;                // v ~ H^-1 df/dw, where the estimator solves a system: the next warm start
  int64_t iterations = 0;         // of the linear solve
  double relative_residual = -1;  // of the linear solve; negative = there is none
  Tensor outer_loss;              // f at the final iterate
  OracleCounts counts;            // of the estimator alone; the inner loop's are in its trajectory
  int64_t bytes_kept = 0;  // vectors held at once beside w, x and the result: iterates, directions, ...
  double inner_gradient_norm =
      -1;    // |grad_w g| at the final iterate; negative = the trajectory did not measure it
  Tensor p;  // df/dw at the final iterate, on the request's batch
  // Where a bound is asked for: the v for which an unrolled estimate is df/dx - C v, were C the same at every
  // step. Apart from `solution`, because no system was solved and nothing is to be started from it.
  Tensor gathered;
  ErrorBound bound = {};      // where the request asks for one
  std::string no_bound;       // why there is none, where one was asked for
  OracleCounts bound_counts;  // what it cost, beside the estimator's own
  double seconds = 0;
};

class HypergradientEstimator {
 public:
  virtual ~HypergradientEstimator() = default;
  virtual std::string_view name() const = 0;
  // True: its limit is the implicit hypergradient, df/dx - C H^-1 df/dw at the solved inner problem. False:
  // the derivative through the steps that were really taken.
  virtual bool implicit() const = 0;
  // K, of those that have one: the terms of a series, steps of a linear solver, kept steps, a rank.
  virtual std::optional<int64_t> terms() const { return std::nullopt; }
  // Which states of a trajectory of `steps` steps it needs: t stands for the state before step t.
  virtual std::vector<int64_t> keeps(int64_t steps, int64_t state_bytes) const;
  // True: where the curvature is not positive its solve ends before it has an answer, so that the status
  // negative_curvature is a failure. False: what it computes there is what it was asked for.
  virtual bool needs_positive_curvature() const { return false; }

  // The rest is for who explains, prices or recommends estimators; each default says that nothing is known.
  virtual EstimatorTraits traits() const { return {}; }
  // The distance that its K leaves in exact arithmetic: of an implicit one from the exact inverse of the same
  // curvature at the final iterate, else from the derivative of all steps. NaN = there is no theory, or it
  // does not apply: mu <= 0, a rate above 1/L, another curvature than the Hessian.
  virtual double theory(const TheoryInputs& inputs) const;
  // What one more of K leaves of the error; 1 = not known. Of those back through the steps a step's own.
  virtual double contraction(const Spectrum& /*curvature*/, double /*inner_rate*/) const { return 1; }
  // By its own schedule, of those that go through the steps.
  virtual std::optional<StepsCost> cost(const StepsAsked& /*inner*/) const { return std::nullopt; }

  // Checks the request, computes, and adds counts, seconds and the verdict on finiteness.
  Hypergradient estimate(Oracle& oracle, const HypergradientRequest& request) const;

 private:
  virtual Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const = 0;
};
using EstimatorList = std::vector<std::shared_ptr<const HypergradientEstimator>>;

// What every estimator begins with: f and df/dx at the final iterate.
Hypergradient estimate_from(const OuterGradients& outer);

// Runs the inner loop with what the estimator needs kept, then the estimator: the usual way to one
// hypergradient.
struct InnerAndHypergradient {
  Trajectory inner;
  Hypergradient hypergradient;
};
InnerAndHypergradient hypergradient_at(Oracle& oracle, const Tensor& x, const Tensor& start,
                                       const InnerOptions& options, const HypergradientEstimator& estimator,
                                       bool with_bound = false);

// For estimators that read kept states: the state before step t, or std::invalid_argument.
const InnerState& kept_state(const Trajectory& trajectory, int64_t t, std::string_view estimator);
// Of those states alone, which an estimator asked for: the trajectory may have kept others for another one.
int64_t bytes_of(const Trajectory& trajectory, const std::vector<int64_t>& states,
                 std::string_view estimator);

}  // namespace bilevel
