#pragma once
// A small tanh network, the non-convex problem of the set: its Hessian has negative eigenvalues, so implicit
// estimators need damping or the Gauss-Newton matrix here.
//
//     g(w, x) = mean_i sigmoid(x_i) * cross entropy_i + sum_t exp(r_t) |W_t|^2,    f(w) = mean validation
//     cross entropy
//
// x = [r: one log regulariser per weight tensor, one logit per training example].

#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/problems/synthetic_classes.h"

namespace bilevel {

struct MlpOptions {
  GaussianClassesOptions data{.classes = 4, .features = 6, .separation = 1};
  int64_t hidden = 12;   // 136 weights with the sizes above
  int64_t samples = 40;  // few: forward mode costs steps times outer variables
  int64_t valid_samples = 40;
  double initial_log = -5;                                             // of the regularisers: exp(-5) = 0.007
  uint64_t seed = 0;                                                   // of the data
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kDouble);  // dtype and device

  void validate() const;
};

class Mlp : public Problem {
 public:
  explicit Mlp(const MlpOptions& options = {});

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // normal / sqrt(inputs), zero biases
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return train_.size(); }
  int64_t outer_samples() const override { return valid_.size(); }
  const Layout* inner_layout() const override { return &weights_; }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

  const LabelledExamples& train() const { return train_; }
  const LabelledExamples& valid() const { return valid_; }

 private:
  Tensor logits(const Tensor& features, const Tensor& w) const;
  Tensor regularizer(const Tensor& w, const Tensor& log_regularizers) const;

  MlpOptions options_;
  LabelledExamples train_, valid_;
  Layout weights_;  // of w
  Layout outer_;    // of x
};

}  // namespace bilevel
