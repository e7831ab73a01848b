#pragma once
// Ridge regression with one regulariser per feature: the smallest problem whose cross derivative depends on
// w, with a closed-form solution and hypergradient.
//
//     g(w, x) = |A w - b|^2 / (2N) + sum_j exp(x_j) w_j^2 / 2,    f(w) = |A_v w - b_v|^2 / (2 N_v)
//     H = A'A / N + diag(exp x),    C v = exp(x) * w * v elementwise

#include <memory>
#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"

namespace bilevel {

struct RidgeOptions {
  int64_t features = 20;  // n and m
  int64_t samples = 50;   // few beside the features: the smallest eigenvalue of A'A / N is near 0.15
  int64_t valid_samples = 50;
  double initial_log = -4;  // x_0 in every coordinate: exp(-4) = 0.02 leaves a condition number of 10 to 20
  double noise = 0.5;       // standard deviation of the targets' noise
  // x is kept where gradient steps at this rate are stable: a useless feature's regulariser would grow for
  // ever, and a rate that was safe at the start would not stay so. 0 = x may go anywhere.
  double stable_rate = 0;
  uint64_t seed = 0;                                                   // of the data
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kDouble);  // dtype and device

  void validate() const;
};

class Ridge : public Problem, public BoundedEvaluation {
 public:
  explicit Ridge(const RidgeOptions& options = {});

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // zero
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return options_.samples; }
  int64_t outer_samples() const override { return options_.valid_samples; }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  void project_outer_(Tensor& x) const override;

  Tensor solution(const Tensor& x) const;       // w*(x)
  Tensor hypergradient(const Tensor& x) const;  // d f(w*(x)) / dx = -exp(x) * w* * H^-1 p

  // The limit of every x_j; infinity where there is none.
  double largest_outer() const { return largest_outer_; }
  const Tensor& matrix() const { return matrix_; }
  const Tensor& target() const { return target_; }
  const Tensor& valid_matrix() const { return valid_matrix_; }
  const Tensor& valid_target() const { return valid_target_; }

 private:
  Tensor solve(const Tensor& x, const Tensor& right) const;  // H^-1 right

  RidgeOptions options_;
  Tensor matrix_, target_;              // A, b
  Tensor valid_matrix_, valid_target_;  // A_v, b_v
  Tensor gram_;                         // A'A / N
  Tensor moment_;                       // A'b / N
  double largest_outer_ = 0;
};

}  // namespace bilevel
