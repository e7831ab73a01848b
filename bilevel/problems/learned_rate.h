#pragma once
// A problem whose inner rates and starting point are learned, as in meta-learning: x holds the log rate of
// each of two weight tensors, the start w_0 itself, and the log regulariser of each tensor.
//
//     g(w, x) = mean cross entropy(tanh(X W_1') W_2') + sum_t exp(r_t) |W_t|^2,    f(w) = the same on
//     validation data
//
// A small network without biases: non-convex, and stopped after a few steps, because start and rate lose
// their influence where the inner problem is solved.

#include "bilevel/core/problem.h"
#include "bilevel/problems/synthetic_classes.h"

namespace bilevel {

struct LearnedRateOptions {
  GaussianClassesOptions data{.classes = 3, .features = 4, .separation = 1};
  int64_t hidden = 5;  // 35 weights with the sizes above
  int64_t samples = 30;
  int64_t valid_samples = 30;
  double initial_rate = 0.3;
  double initial_regularization = 0.01;
  // False: the regulariser is a constant and g has no x in it; only rate and start are learned.
  bool learn_regularization = true;
  uint64_t seed = 0;                                                   // of the data
  at::TensorOptions tensors = at::TensorOptions().dtype(at::kDouble);  // dtype and device

  void validate() const;
};

class LearnedRate : public Problem {
 public:
  explicit LearnedRate(const LearnedRateOptions& options = {});

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // the start that initial_outer(seed) holds
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return train_.size(); }
  int64_t outer_samples() const override { return valid_.size(); }
  Tensor inner_start(const Tensor& x) const override;
  Tensor inner_rate(const Tensor& x) const override;
  const Layout* inner_layout() const override { return &weights_; }
  bool inner_loss_uses_outer() const override { return options_.learn_regularization; }
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

  const Layout& outer_layout() const { return outer_; }
  const LabelledExamples& train() const { return train_; }
  const LabelledExamples& valid() const { return valid_; }

 private:
  Tensor logits(const Tensor& features, const Tensor& w) const;

  LearnedRateOptions options_;
  LabelledExamples train_, valid_;
  Layout weights_;  // of w
  Layout outer_;    // of x
};

}  // namespace bilevel
