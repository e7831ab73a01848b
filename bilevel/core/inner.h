#pragma once
// Inner optimisers, each as one step, the adjoint of that step and its tangent. A step is an elementwise map
// of (state, gradient, rate); what makes it a step of bilevel optimisation, that the gradient depends on w
// and x, is added by whoever holds the oracle (core/trajectory.h). So an optimiser is a dozen lines of
// arithmetic and knows no autograd.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/core/schedule.h"
#include "bilevel/core/tensor.h"

namespace bilevel {

struct InnerState {
  Tensor w;
  std::vector<Tensor> buffers;  // momenta, of w's size; never written in place: kept states share them
  int64_t step = 0;             // steps taken so far: drives schedules and Adam's bias correction
  int64_t bytes() const;
};

// The rate of one step: a number, or a tensor that belongs to x (one element, or one per inner variable).
struct StepRate {
  double value = 0;
  Tensor learned;  // undefined = `value`
};

struct StepAdjoint {
  InnerState before;  // adjoint of the state before the step, but for what flows through the gradient
  Tensor gradient;    // adjoint of the gradient: H and C applied to it give the rest
  Tensor rate;        // adjoint of the rate, per inner variable; undefined unless the rate is learned
};

class InnerOptimizer {
 public:
  virtual ~InnerOptimizer() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t buffer_count() const = 0;
  virtual InnerState step(const InnerState& before, const Tensor& gradient, const StepRate& rate) const = 0;
  // `gradient` may be undefined where adjoint_needs_gradient() is false and the rate is not learned.
  virtual StepAdjoint adjoint(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                              const InnerState& after_adjoint) const = 0;
  // `rate_tangent` is undefined where the rate is not learned.
  virtual InnerState tangent(const InnerState& before, const Tensor& gradient, const StepRate& rate,
                             const InnerState& before_tangent, const Tensor& gradient_tangent,
                             const Tensor& rate_tangent) const = 0;
  virtual bool adjoint_needs_gradient() const { return false; }
  // The largest rate at which the step is stable on a quadratic whose largest curvature is given; infinity
  // where there is no such limit.
  virtual double largest_safe_rate(double largest_curvature) const = 0;

  InnerState start(const Tensor& w) const;  // zero buffers, step 0
};

struct InnerOptions {
  std::string optimizer = "gd";  // gd, heavy-ball, nesterov, adam
  int64_t steps = 100;           // T; 0 is legal
  double rate = 0.1;             // gradient descent needs rate < 2 / L; see core/spectrum.h
  Schedule schedule = {};        // multiplies the rate, learned or not
  double momentum = 0.9;         // heavy-ball and nesterov
  double beta1 = 0.9;            // adam
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Largest norm of the gradient that a step sees (core/clipped.h); 0 = no clipping. The weight decay is part
  // of g and so of what is clipped, where PyTorch's optimisers add theirs afterwards.
  double clip_norm = 0;
  void validate() const;
};

const std::vector<std::string>& inner_optimizer_names();
std::unique_ptr<InnerOptimizer> make_inner_optimizer(const InnerOptions& options);

}  // namespace bilevel
