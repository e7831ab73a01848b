#pragma once
// DARTS's one-step hypergradient: df/dx - rate * C df/dw, with C at the weights before the last inner step
// and df/dw after it. It is the derivative of that one step, so K-RMD with K = 1: the same code under the
// name it is known by. DARTS takes C df/dw by a central difference, which difference_cross gives.

#include "bilevel/hypergradients/truncated.h"

namespace bilevel {

struct OneStepOptions {
  bool difference_cross = false;
  double difference_step = 0.01;  // how far w moves to either side
  static const Fields<OneStepOptions>& fields();
};

class OneStep : public Truncated {
 public:
  explicit OneStep(OneStepOptions options = {})
      : Truncated({.steps = 1,
                   .difference_cross = options.difference_cross,
                   .difference_step = options.difference_step}) {}
  std::string_view name() const override { return "one-step"; }
  std::optional<int64_t> terms() const override { return std::nullopt; }  // always one
  EstimatorTraits traits() const override { return {.approach = Approach::last_step}; }
};

}  // namespace bilevel
