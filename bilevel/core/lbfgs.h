#pragma once
// L-BFGS (Nocedal 1980) for inner problems that are to be solved to a tolerance, where gradient descent at a
// safe rate would take a number of steps proportional to the condition number. It reads gradients alone: a
// step is accepted by Hager and Zhang's approximate Wolfe conditions (2005, Eq. 22), which look at slopes.
// Values are flat to rounding long before the slopes are, and no oracle counts them.

#include <cstdint>
#include <functional>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

struct LbfgsOptions {
  double tolerance = 0;             // on the gradient's norm
  double relative_tolerance = 0;    // on the gradient's norm over the first one's; either is enough
  int64_t most_gradients = 10'000;  // the first one included; at least 1
  double first_step = 1;  // w - first_step * gradient is tried first; afterwards it knows its own lengths
  int64_t memory = 20;    // pairs of steps and changes of the gradient
  void validate() const;
};

struct LbfgsResult {
  Tensor w;                  // of the smallest gradient
  double gradient_norm = 0;  // there
  int64_t gradients = 0;     // taken
  // converged; max_iterations; breakdown where rounding hides the way down; not_finite where the first
  // gradient is
  Status status = Status::not_run;
};

LbfgsResult minimize(const std::function<Tensor(const Tensor& w)>& gradient, const Tensor& w,
                     const LbfgsOptions& options);

}  // namespace bilevel
