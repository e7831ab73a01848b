#pragma once
// What the theory says K terms leave, beside a sweep over K: iDARTS's Theorem 1 for neumann, K-RMD's
// Proposition 3.1 for truncated, Chebyshev's polynomials for conjugate gradients. Not to be called a bound on
// a hypergradient's error: it is about the K terms alone, in exact arithmetic, and its constants are measured
// where the inner loop ended. hypergradients/bound.h has the bound that also knows of the unsolved inner
// problem and of rounding.

#include <cstdint>
#include <string>

#include "bilevel/core/oracle.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct BoundInputs {
  double mu = 0, smoothness = 0;  // extremes of the curvature at the final iterate
  bool hessian = true;            // which is the Hessian itself, so that it also governs the steps
  double rate = 0;                // of the inner steps
  double linear_rate = 0;         // of neumann and fixed-point
  double p_norm = 0;              // |df/dw|
  double cross_norm = 0;          // |C| at the final iterate
  double largest_cross_norm = 0;  // the largest |C| met along the trajectory, at up to 20 of its kept states
  int64_t steps = 0;              // T
};
BoundInputs bound_inputs(Oracle& oracle, const Tensor& x, const Trajectory& trajectory,
                         const Spectrum& spectrum, const CurvatureOptions& curvature, double linear_rate);

// Absolute: the distance of an implicit estimator from the exact inverse of the same curvature at the final
// iterate, of truncated from the unrolled reference. NaN where there is none: mu <= 0, a rate above 1/L,
// truncated under another curvature than the Hessian, or an estimator without a theory.
double theory_of_terms(const std::string& method, int64_t terms, const BoundInputs& inputs);

}  // namespace bilevel
