#pragma once
// What computes a supernet's derivatives: automatic differentiation (supernet_problem.h), or captured graphs
// (captured_supernet.h).

#include "bilevel/core/problem.h"

namespace bilevel::nas {

class SupernetEngine : public Problem {
 public:
  // The gradient of g in w where the mixture is given instead of alpha.
  virtual Tensor inner_gradient_at(const Tensor& w, const Tensor& mixture, const Batch& batch) const = 0;
};

}  // namespace bilevel::nas
