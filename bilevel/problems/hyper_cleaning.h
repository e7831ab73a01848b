#pragma once
// Data hyper-cleaning (K-RMD section 4.2.1, stocBiO section 4.2, FSLA section 6.2): one weight per training
// example, learned so that a softmax regression on the weighted set does well on clean validation data.
//
//     g(w, x) = mean_i sigmoid(x_i) * cross entropy_i(X W') + regularization |W|^2,    f(w) = mean cross
//     entropy(X_v W')
//
// The mean, not K-RMD's printed sum, which diverges at its own rate of 1. W is classes x features,
// flat row by row; W and x start at zero.

#include <optional>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"
#include "bilevel/problems/cleaning_data.h"

namespace bilevel {

class HyperCleaning : public Problem, public BoundedEvaluation {
 public:
  // Throws std::invalid_argument unless the regularization is finite and at least 0.
  HyperCleaning(const CleaningData& data, double regularization, const at::TensorOptions& tensors);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return data_.train.size(); }
  int64_t outer_samples() const override { return data_.valid.size(); }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  // Accuracies; and, where the bad labels are known, the F1 score of flagging x_i < -3 (K-RMD's threshold)
  // against both truths, replaced and wrong.
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

  const CleaningData& data() const { return data_; }
  // A bound on the largest eigenvalue of H at every w and every x: with p = softmax(logits), sigmoid <= 1 and
  // diag(p) - pp' <= 1/2, so H <= X'X / (2N) + 2 regularization. The eigenvalue of X'X comes from power
  // iterations, which approach it from below; 1/L still has a factor 2 in hand (a step is stable up to 2/L).
  double smoothness_bound() const;

 private:
  Tensor logits(const Tensor& features, const Tensor& w) const;

  at::TensorOptions tensors_;
  CleaningData data_;
  double regularization_;
};

}  // namespace bilevel
