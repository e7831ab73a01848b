#pragma once
// Softmax regression with one regulariser per feature, on synthetic data: the form that stocBiO solves on
// 20 Newsgroups (its section 4.2, after Grazzi et al.), with unit rows as there.
//
//     g(w, x) = mean cross entropy(X W') + 1/(c p) sum_ij exp(x_j) W_ij^2,    f(w) = mean cross entropy(X_v
//     W')
//
// W is classes x features, flat row by row. The model is linear in w: the Gauss-Newton matrix is the Hessian.

#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"
#include "bilevel/problems/synthetic_classes.h"

namespace bilevel {

struct SoftmaxRegressionOptions {
  // Unit rows keep the cross entropy's curvature small beside the regulariser's 2/(cp): a condition number
  // below 10.
  GaussianClassesOptions data{.classes = 5, .features = 20, .separation = 1, .unit_rows = true};
  int64_t samples = 100;
  int64_t valid_samples = 100;
  uint64_t seed = 0;                                                   // of the data
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kDouble);  // dtype and device
  double stable_rate = 0;  // x is kept where gradient steps at this rate are stable; 0 = x may go anywhere
};

class SoftmaxRegression : public Problem, public BoundedEvaluation {
 public:
  explicit SoftmaxRegression(const SoftmaxRegressionOptions& options = {});

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // zero
  Tensor initial_outer(uint64_t seed) const override;  // zero: every regulariser is 1/(cp)
  int64_t inner_samples() const override { return train_.size(); }
  int64_t outer_samples() const override { return valid_.size(); }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;
  void project_outer_(Tensor& x) const override;

  // The limit of every x_j; infinity where there is none.
  double largest_outer() const { return largest_outer_; }
  const LabelledExamples& train() const { return train_; }
  const LabelledExamples& valid() const { return valid_; }

 private:
  Tensor logits(const Tensor& features, const Tensor& w) const;
  Tensor regularizer(const Tensor& w, const Tensor& x) const;
  Tensor ridge(const Tensor& x) const;  // 2 exp(x_j) / (c p), in double precision

  at::TensorOptions tensors_;
  int64_t classes_, features_;
  LabelledExamples train_, valid_;
  double largest_outer_ = 0;
};

}  // namespace bilevel
