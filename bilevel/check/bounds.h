#pragma once
// What an estimator's theory needs (HypergradientEstimator::theory), measured where the inner loop ended.
// What the theory says K terms leave is not to be called a bound on a hypergradient's error: it is about the
// K terms alone, in exact arithmetic. hypergradients/bound.h has the bound that also knows of the unsolved
// inner problem and of rounding.

#include "bilevel/core/oracle.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

TheoryInputs theory_inputs(Oracle& oracle, const Tensor& x, const Trajectory& trajectory,
                           const Spectrum& spectrum, const CurvatureOptions& curvature);

}  // namespace bilevel
