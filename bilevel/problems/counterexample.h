#pragma once
// K-RMD, Theorem 3.5 (appendix E): truncation need not converge to a stationary point where f has x in it
// directly.
//
//     f(w, x) = w^2 / 2 + (x - target)^2 / 2,    g(w, x) = (w - x)^2 / 2
//
// Solved, w = x and the minimum is at x = target / 2. Truncated to K steps at a rate r, the hypergradient
// there is (x - target) + (1 - (1-r)^K) x, which vanishes elsewhere: at x = target / (2 - (1-r)^K).

#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"

namespace bilevel {

class Counterexample : public Problem, public BoundedEvaluation {
 public:
  explicit Counterexample(const at::TensorOptions& tensors, double target = 1);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  double target() const { return target_; }

 private:
  at::TensorOptions tensors_;
  double target_;
};

}  // namespace bilevel
