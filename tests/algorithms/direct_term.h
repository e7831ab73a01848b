#pragma once
// The known problems' outer losses have no x in them, so a rule that loses df/dx would pass. This adds some.

#include "tests/support.h"

namespace bilevel::test {

class WithDirectTerm : public ForwardingProblem {
 public:
  using ForwardingProblem::ForwardingProblem;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return base_.outer_loss(w, x, batch) + 0.3 * x.square().sum() + 0.2 * w.sum() * x.sum();
  }
};

}  // namespace bilevel::test
