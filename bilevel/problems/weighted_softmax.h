#pragma once
// Data hyper-cleaning in closed form: the problem of hyper_cleaning.h, the same numbers to rounding, several
// times faster because nothing is differentiated and every product reads the data once.
//
//     g(w, x) = mean_i sigmoid(x_i) CE_i(W) + regularization |W|^2,    f(w) = mean CE on validation data
//
// W is classes x features, flat row by row, as there; W and x start at zero. CPU only.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"
#include "bilevel/problems/cleaning_data.h"
#include "bilevel/problems/labelled_rows.h"
#include "bilevel/problems/softmax_point.h"

namespace bilevel {

class WeightedSoftmax : public Problem, public BoundedEvaluation {
 public:
  // The drawn or read data of hyper-cleaning, compressed where that is faster or where it is asked for.
  WeightedSoftmax(const CleaningData& data, double regularization, const at::TensorOptions& tensors,
                  FeatureMatrix::Storage storage = FeatureMatrix::Storage::automatic);
  // Any features, sparse ones too. `replaced` and `wrong` as in CleaningData.
  WeightedSoftmax(LabelledRows train, LabelledRows valid, int64_t classes, double regularization,
                  Tensor replaced = {}, Tensor wrong = {});

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;
  Tensor initial_outer(uint64_t seed) const override;
  int64_t inner_samples() const override { return train_.size(); }
  int64_t outer_samples() const override { return valid_.size(); }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;  // as HyperCleaning

  double smoothness_bound() const;  // as HyperCleaning
  const LabelledRows& train() const { return train_; }
  const LabelledRows& valid() const { return valid_; }
  const WeightLayout& layout() const { return layout_; }

 private:
  SoftmaxTerms terms(const Tensor& x, const Batch& batch) const;

  LabelledRows train_, valid_;
  WeightLayout layout_;
  double regularization_;
  Tensor replaced_, wrong_;
};

}  // namespace bilevel
