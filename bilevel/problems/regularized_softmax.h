#pragma once
// Softmax regression with one regulariser per feature in closed form, dense or sparse: the problem that
// stocBiO solves on 20 Newsgroups (its section 4.2, after Grazzi et al.), and the numbers of
// softmax_regression.h to rounding.
//
//     g(w, x) = mean CE(X W) + 1/(c p) sum_jk exp(x_j) W_jk^2,    f(w) = mean CE(X_v W)
//
// W is *features x classes*, flat row by row (softmax_regression.h has it the other way round): the weights
// of one feature are together, so that a non-zero touches one run of memory, and with 20 classes w is used
// where it lies. No temporary has the size of the dense data; the largest are a few vectors of w's. CPU only.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bilevel/core/problem.h"
#include "bilevel/core/rounding.h"
#include "bilevel/problems/labelled_rows.h"
#include "bilevel/problems/softmax_point.h"

namespace bilevel {

class RegularizedSoftmax : public Problem, public BoundedEvaluation {
 public:
  RegularizedSoftmax(LabelledRows train, LabelledRows valid, int64_t classes);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // zero
  Tensor initial_outer(uint64_t seed) const override;  // zero: every regulariser is 1/(cp)
  int64_t inner_samples() const override { return train_.size(); }
  int64_t outer_samples() const override { return valid_.size(); }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override;
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  std::optional<LossConstants> loss_constants(const Tensor& x) const override;
  std::optional<EvaluationErrors> evaluation_errors(const Tensor& w, const Tensor& x) const override;
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

  // A bound on the largest eigenvalue of H at this x and every w: X'X / (2N) plus the largest ridge.
  double smoothness_bound(const Tensor& x) const;
  const LabelledRows& train() const { return train_; }
  const LabelledRows& valid() const { return valid_; }
  const WeightLayout& layout() const { return layout_; }

 private:
  Tensor ridge(const Tensor& x) const;        // 2 exp(x_j) / (c p)
  Tensor exact_ridge(const Tensor& x) const;  // the same in double precision, for bounds
  SoftmaxTerms terms(const Tensor& x, const Batch& batch) const;

  LabelledRows train_, valid_;
  WeightLayout layout_;
};

}  // namespace bilevel
