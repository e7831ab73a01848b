#pragma once
// DARTS's one-step hypergradient: df/dx - rate * C df/dw, with C at the weights before the last inner step
// and df/dw after it. It is the derivative of that one step, so K-RMD with K = 1: the same code under the
// name it is known by.

#include "bilevel/hypergradients/truncated.h"

namespace bilevel {

class OneStep : public Truncated {
 public:
  OneStep() : Truncated({.steps = 1}) {}
  std::string_view name() const override { return "one-step"; }
};

}  // namespace bilevel
