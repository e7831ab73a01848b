#pragma once
// FSLA, section 6.1 (figure 1): both levels are least squares, so H and C are constant and everything has a
// closed form. Sums, not means, and no factor 1/2, as printed:
//
//     f(w) = |A_o w - b_o|^2,     g(w, x) = |A_x x + A_w w - b_i|^2
//
// With entries uniform on [0,1] and 10,000 samples H = 2 A_w'A_w has eigenvalues from 1.6e3 to 2.7e4, so the
// paper's rate 2e-5 contracts by 0.968 a step. A minibatch's sum is scaled by N/|B| and so
// unbiased.

#include <memory>
#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"

namespace bilevel {

struct QuadraticOptions {
  int64_t dimension = 5;                                               // of w (the paper's)
  int64_t outer_dimension = 0;                                         // of x; 0 = that of w
  int64_t samples = 10'000;                                            // of both levels (the paper's)
  double noise_variance = 0.1;                                         // of b_o and b_i (the paper's)
  uint64_t seed = 0;                                                   // of the data
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kDouble);  // dtype and device

  void validate() const;
};

class Quadratic : public Problem, public BoundedEvaluation {
 public:
  explicit Quadratic(const QuadraticOptions& options = {});

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // uniform on [0,1]
  Tensor initial_outer(uint64_t seed) const override;  // uniform on [0,1]
  int64_t inner_samples() const override { return options_.samples; }
  int64_t outer_samples() const override { return options_.samples; }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;

  Tensor solution(const Tensor& x) const;       // w*(x)
  Tensor hypergradient(const Tensor& x) const;  // d f(w*(x)) / dx

  const Tensor& outer_matrix() const { return outer_matrix_; }  // A_o
  const Tensor& outer_target() const { return outer_target_; }  // b_o
  const Tensor& inner_matrix() const { return inner_matrix_; }  // A_w
  const Tensor& cross_matrix() const { return cross_matrix_; }  // A_x
  const Tensor& target() const { return target_; }              // b_i

 private:
  double scale(const Batch& batch) const;  // N / |B|

  QuadraticOptions options_;
  Tensor outer_matrix_, outer_target_;           // A_o, b_o
  Tensor inner_matrix_, cross_matrix_, target_;  // A_w, A_x, b_i
  Tensor hessian_;                               // 2 A_w'A_w
  Tensor cross_;                                 // 2 A_x'A_w: x by w
  Tensor linear_;                                // -2 A_w'b_i
};

}  // namespace bilevel
