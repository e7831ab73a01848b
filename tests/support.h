#pragma once
// What the tests share: relative errors, finite differences of whole objectives, and automatic differentiation
// through the unrolled graph. The last exists here and in `bilevel check` only, as a reference: one call hides T
// Hessian products and keeps T graphs.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "bilevel/core/inner.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/problem.h"
#include "bilevel/core/trajectory.h"

namespace bilevel::test {

inline double relative_error(const Tensor& value, const Tensor& reference) {
  const double scale = reference.norm().item<double>();
  const double error = (value - reference).norm().item<double>();
  return scale > 0 ? error / scale : error;
}

// The gradient of a function of x by central differences, one entry at a time; error about step^2.
inline Tensor finite_differences(const std::function<double(const Tensor&)>& function, const Tensor& x,
                                 double step = 1e-5) {
  Tensor gradient = at::zeros_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    Tensor above = x.clone(), below = x.clone();
    above[i] += step;
    below[i] -= step;
    gradient[i] = (function(above) - function(below)) / (2 * step);
  }
  return gradient;
}

// f after the T steps of the inner optimiser, as a number: what finite differences of the whole objective need.
inline double unrolled_objective(const Problem& problem, const Tensor& x, const Tensor& start,
                                 const InnerOptions& options, const InnerBatches& batches = {},
                                 const Batch& outer = {}) {
  Oracle oracle(problem);
  InnerRun run;
  run.options = options;
  run.batches = batches;
  const Trajectory inner = run_inner(oracle, x, start, run);
  return oracle.outer_loss(inner.final.w, x, outer).item<double>();
}

}  // namespace bilevel::test
