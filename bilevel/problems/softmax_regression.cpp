#include "bilevel/problems/softmax_regression.h"

#include <ATen/ATen.h>

#include <cmath>

#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/softmax_constants.h"
#include "bilevel/problems/softmax_loss.h"
#include "bilevel/problems/softmax_rounding.h"
#include "bilevel/problems/stable_outer.h"

namespace bilevel {

SoftmaxRegression::SoftmaxRegression(const SoftmaxRegressionOptions& options)
    : tensors_(options.tensors),
      classes_(options.data.classes),
      features_(options.data.features),
      train_(draw_gaussian_classes(options.data, options.samples, options.seed, "train").to(tensors_)),
      valid_(draw_gaussian_classes(options.data, options.valid_samples, options.seed, "valid").to(tensors_)) {
  const Tensor rows = train_.features.to(at::kCPU, at::kDouble);
  const double gram = at::linalg_eigvalsh(rows.t().mm(rows) / train_.size()).max().item<double>();
  // At every w: a unit vector's variance under a softmax is at most 1/2.
  largest_outer_ =
      largest_stable_log(options.stable_rate, gram / 2, 2 / static_cast<double>(classes_ * features_), 0);
}

void SoftmaxRegression::project_outer_(Tensor& x) const {
  if (std::isfinite(largest_outer_)) x = x.clamp_max(largest_outer_);
}

Tensor SoftmaxRegression::logits(const Tensor& features, const Tensor& w) const {
  return features.mm(w.view({classes_, features_}).t());
}

Tensor SoftmaxRegression::regularizer(const Tensor& w, const Tensor& x) const {
  const Tensor weights = w.view({classes_, features_});
  return (x.exp() * (weights * weights).sum(0)).sum() / (classes_ * features_);
}

Tensor SoftmaxRegression::ridge(const Tensor& x) const {
  return x.detach().to(at::kCPU, at::kDouble).exp() * (2 / static_cast<double>(classes_ * features_));
}

Tensor SoftmaxRegression::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return mean_cross_entropy(logits(batch_rows(train_.features, batch), w), batch_rows(train_.labels, batch)) +
         regularizer(w, x);
}

Tensor SoftmaxRegression::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return mean_cross_entropy(logits(batch_rows(valid_.features, batch), w), batch_rows(valid_.labels, batch));
}

Tensor SoftmaxRegression::initial_inner(uint64_t /*seed*/) const {
  return at::zeros({classes_ * features_}, tensors_);
}

Tensor SoftmaxRegression::initial_outer(uint64_t /*seed*/) const { return at::zeros({features_}, tensors_); }

std::optional<InnerParts> SoftmaxRegression::inner_parts(const Tensor& w, const Tensor& x,
                                                         const Batch& batch) const {
  const Tensor labels = batch_rows(train_.labels, batch);
  return InnerParts{logits(batch_rows(train_.features, batch), w),
                    [labels](const Tensor& outputs) { return mean_cross_entropy(outputs, labels); },
                    regularizer(w, x)};
}

std::map<std::string, double> SoftmaxRegression::metrics(const Tensor& w, const Tensor& /*x*/) const {
  return {{"train_accuracy", accuracy_percent(logits(train_.features, w), train_.labels)},
          {"valid_accuracy", accuracy_percent(logits(valid_.features, w), valid_.labels)}};
}

std::optional<LossConstants> SoftmaxRegression::loss_constants(const Tensor& x) const {
  return ridge_softmax_constants(dense_rows(train_.features), dense_rows(valid_.features), ridge(x));
}

std::optional<EvaluationErrors> SoftmaxRegression::evaluation_errors(const Tensor& w, const Tensor& x) const {
  const WeightLayout layout{.classes = classes_, .features = features_, .by_feature = false};
  return ridge_softmax_errors(dense_rows(train_.features), dense_rows(valid_.features), layout, w, ridge(x));
}

}  // namespace bilevel
