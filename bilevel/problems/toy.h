#pragma once
// K-RMD, section 4.1: the two-dimensional problem that its figures 1 to 4 show.
//
//     f(w) = |w|^2 + 10 |sin w|^2  [+ 5 |x - (1,0)|^2, the interfering variant]
//     g(w, x) = (w - x)' G (w - x) / 2,   G = diag(1, 1/2)
//
// w_0 = (2,2), T = 100 steps at rate 0.1; figure 1 is at x = (1,1). After T steps w = C w_0 + (I - C) x with
// C = (I - rate G)^T, which is far from solved in the second coordinate (0.95^100 = 0.006): that is the
// point.

#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"

namespace bilevel {

class Toy : public Problem, public BoundedEvaluation {
 public:
  explicit Toy(const at::TensorOptions& tensors, bool interfering = false);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;

 private:
  at::TensorOptions tensors_;
  bool interfering_;
  Tensor curvature_;  // the diagonal of G
  Tensor attractor_;  // (1, 0)
};

}  // namespace bilevel
