#pragma once
// What computes a supernet's derivatives: automatic differentiation (supernet_problem.h), its tape
// (tape/taped_supernet.h), or captured graphs (captured_supernet.h).

#include <memory>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/problem.h"

namespace bilevel::nas {

class SupernetEngine : public Problem {
 public:
  // The gradient of g in w where the mixture is given instead of alpha.
  virtual Tensor inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const = 0;
  // v -> (d2f/dx dx) v at one point; null where only automatic differentiation knows it. The engine must
  // outlive the function, which is good until the next one is made.
  virtual MatrixProduct outer_curvature(const Tensor& /*w*/, const Tensor& /*x*/,
                                        const Batch& /*batch*/) const {
    return nullptr;
  }
};

}  // namespace bilevel::nas
