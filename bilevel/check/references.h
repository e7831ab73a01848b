#pragma once
// The two references that estimators are checked against, never mixed up: the implicit hypergradient at the
// solved inner problem, and the derivative of f after the T steps that were really taken. Both are found by
// ways that no estimator uses: Newton's method to rounding, and automatic differentiation through the
// unrolled graph (whose T hidden Hessian products and T kept graphs are why it is a reference and not a
// method).

#include <string>

#include "bilevel/core/oracle.h"
#include "bilevel/core/solve_inner.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/hypergradients/implicit.h"

namespace bilevel {

struct Reference {
  Tensor value;  // undefined = there is none, and `why` says why
  std::string why;
};
struct ImplicitReference : Reference {
  SolvedInner inner;
  bool at_iterate = false;  // at the w that was given: `inner` was not run
};
// The formula at `w` itself, for problems whose inner problem no one solves: what a network's implicit
// estimates are estimates of. By a factorisation up to 1,000 unknowns, else by MINRES, which knows no sign.
ImplicitReference implicit_reference_at(Oracle& oracle, const Tensor& x, const Tensor& w,
                                        const CurvatureOptions& curvature);
// At the solution nearest to `w`; with the Gauss-Newton or damped curvature in place of the Hessian if asked.
ImplicitReference implicit_reference(Oracle& oracle, const Tensor& x, const Tensor& w,
                                     const CurvatureOptions& curvature = {},
                                     const InnerSolveOptions& solve = {});
// Of the T steps from `start` (or from the learned start) on the given batches.
Reference unrolled_reference(const Problem& problem, const Tensor& x, const Tensor& start,
                             const InnerOptions& options, const InnerBatches& batches = {},
                             const Batch& outer = {});

}  // namespace bilevel
