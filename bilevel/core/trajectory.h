#pragma once
// The inner loop and its derivative: T steps of an inner optimiser with the states that an estimator asked to
// keep, and one step of the reverse and of the forward recursion over them (K-RMD, Eqs. 6 and 7;
// docs/mathematics.md, "Inner steps and their derivatives"). Nothing here holds a graph over more than one
// step.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "bilevel/core/batch.h"
#include "bilevel/core/inner.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

using InnerBatches = std::function<Batch(int64_t step)>;  // the batch of step 0 .. T-1

struct Trajectory {
  InnerOptions options;
  std::shared_ptr<const InnerOptimizer> optimizer;
  InnerState final;                    // after T steps
  std::vector<Batch> batches;          // of every step, so that any step can be taken again
  std::map<int64_t, InnerState> kept;  // t -> the state before step t (that is, after t steps)
  Tensor learned_rate;                 // per inner variable or one element; undefined = options.rate
  bool start_is_learned = false;
  double gradient_norm = -1;  // |grad_w g| at the final iterate; negative = not measured
  OracleCounts counts;        // what the loop cost, the measuring of gradient_norm included

  int64_t steps() const { return static_cast<int64_t>(batches.size()); }
  int64_t bytes_kept() const;
  // The rate of step t. As one number for the series of implicit estimators: the smallest where it is learned
  // per tensor, since a series is safe at any rate below the largest.
  StepRate rate(const InnerState& before) const;
  double last_rate() const;
};

struct InnerLoop {
  InnerOptions options;
  std::vector<int64_t> keep;     // which states before step t to keep; sorted or not, 0 <= t < T
  InnerBatches batches;          // empty = the full set at every step
  bool measure_gradient = true;  // one more inner gradient, for gradient_norm
};

// Runs T steps from `start`, or from the problem's learned start where it has one. Throws NotFiniteError,
// naming the first bad step, where the iterates leave the finite numbers.
Trajectory run_inner(Oracle& oracle, const Tensor& x, const Tensor& start, const InnerLoop& run);
// The same from a state, with its momenta and step count: the warm start of an algorithm. Never the learned
// start.
Trajectory continue_inner(Oracle& oracle, const Tensor& x, const InnerState& start, const InnerLoop& run);

// Takes step t of the trajectory again from the state before it: the same bits as the first time.
InnerState replay_step(Oracle& oracle, const Tensor& x, const Trajectory& trajectory, int64_t t,
                       const InnerState& before);

// What the reverse recursion carries: a_t and h.
struct ReverseSweep {
  InnerState adjoint;          // a: of w and of the optimiser's buffers
  Tensor x;                    // h: starts at df/dx
  Tensor rate;                 // of the base rate, per inner variable; undefined until a learned rate is met
  double difference_step = 0;  // cross products by differences that move w this far; 0 = exact ones
  // The sum v of the vectors that C was applied to, gathered where it is defined at the start (as zeros): h
  // is df/dx - C v where C is the same at every step, which makes it a solution for H v = df/dw.
  Tensor gathered;
};
ReverseSweep begin_reverse(const Trajectory& trajectory, const Tensor& outer_w, const Tensor& outer_x);
// One step of the reverse recursion (Eq. 6), over step t from the state before it. `more` = another step
// follows, so a_{t-1} is needed: the last one saves its Hessian product.
void reverse_step(Oracle& oracle, const Tensor& x, const Trajectory& trajectory, int64_t t,
                  const InnerState& before, bool more, ReverseSweep& sweep);
// Adds what flows into a learned rate and, if asked, into a learned start. Returns the hypergradient.
Tensor end_reverse(Oracle& oracle, const Tensor& x, const Trajectory& trajectory, bool with_start,
                   const ReverseSweep& sweep);

}  // namespace bilevel
