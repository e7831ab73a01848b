#pragma once
// The inner problem solved to a tolerance: w*(x), for yardsticks, references and results. Newton's method
// with a line search, on Hessian products through the oracle: no rate to choose, and to the last digits in a
// few steps. Small Hessians are assembled and factorised, with damping where they are not positive; above
// that conjugate gradients find the step, as precisely as the quadratic model deserves.

#include <cstdint>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

struct InnerSolveOptions {
  int64_t iterations = 100;  // Newton steps, at most
  int64_t products = 0;      // Hessian products, about; 0 = no limit
  // On |grad_w g| / gradient_scale. 0 = as far as rounding lets the gradient fall.
  double relative_tolerance = 0;
  // 0 = |grad_w g| at the start. Give one where solutions from several starts must be equally precise.
  double gradient_scale = 0;
  int64_t direct_limit = 1000;  // unknowns up to which the Hessian is assembled
  void validate() const;        // throws std::invalid_argument
};

struct SolvedInner {
  Tensor w;
  double gradient_norm = -1;  // |grad_w g| at w
  int64_t iterations = 0;
  int64_t products = 0;  // Hessian products
  // converged; max_iterations: the steps or the products ran out; breakdown: no step lowers g, or no damping
  // makes the Hessian positive; not_finite.
  Status status = Status::not_run;
  bool solved = false;  // converged: the gradient is below the tolerance, or down to rounding
};
// From `w`, where g and its gradient must be finite. Where g has several minima, one near `w`.
SolvedInner solve_inner(Oracle& oracle, const Tensor& x, const Tensor& w,
                        const InnerSolveOptions& options = {});

}  // namespace bilevel
