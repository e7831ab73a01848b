#pragma once
// What can be known of an estimator before it is run. Whoever explains, prices or recommends estimators
// (check/) goes by this and not by their names, so that one of a user's own is treated like the built-in
// ones.

#include <cstdint>

#include "bilevel/core/oracle.h"

namespace bilevel {

// How an estimator comes to its estimate: what can go wrong with it, and what its K counts.
enum class Approach {
  own,         // none of those below: nothing is taken for granted
  inverse,     // the inverse of the curvature itself, to rounding: a reference, whatever it costs
  identity,    // the identity in the inverse's place
  krylov,      // K steps of a Krylov method
  series,      // K terms of a series, or steps, at a linear rate
  low_rank,    // the inverse of an approximation of rank K
  last_step,   // back through the last step alone
  last_steps,  // back through the last K steps
  all_steps,   // over all steps taken
};

struct EstimatorTraits {
  Approach approach = Approach::own;
  double linear_rate = 0;           // of a series; 0 = the inner loop's last rate
  bool negative_curvature = false;  // its answer is right there, too
  bool plain_steps = false;         // it describes gradient descent without momentum, at a fixed rate
  bool per_outer_variable = false;  // each step costs products for every entry of x
};

// What the theory of an estimator's error needs, measured where the inner loop ended.
struct TheoryInputs {
  double mu = 0, smoothness = 0;  // extremes of the curvature at the final iterate
  bool hessian = true;            // which is the Hessian itself, so that it also governs the steps
  double rate = 0;                // of the inner steps
  double p_norm = 0;              // |df/dw|
  double cross_norm = 0;          // |C| at the final iterate
  double largest_cross_norm = 0;  // the largest |C| met along the trajectory, at up to 20 of its kept states
  int64_t steps = 0;              // T
};

// An inner loop that an estimator is to go through, and what that costs beside the loop itself.
struct StepsAsked {
  int64_t steps = 0;          // T
  int64_t outer_size = 0;     // m
  int64_t iterate_bytes = 0;  // of w
  int64_t state_bytes = 0;    // of w with the optimiser's buffers
  bool uses_outer = true;     // g depends on x, so that there are cross products
  bool learned_start = false;
  bool adjoint_needs_gradient = false;  // back through a step, which the optimiser or a learned rate decides
};
struct StepsCost {
  OracleCounts counts;  // without their samples
  int64_t bytes = 0;
};

}  // namespace bilevel
