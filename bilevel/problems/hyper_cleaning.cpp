#include "bilevel/problems/hyper_cleaning.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/label_noise.h"
#include "bilevel/problems/softmax_constants.h"
#include "bilevel/problems/softmax_loss.h"
#include "bilevel/problems/softmax_rounding.h"

namespace bilevel {
namespace {

constexpr int cleaning_power_iterations = 30;

void check_finite(const LabelledExamples& examples, const char* set) {
  if (!examples.features.isfinite().all().item<bool>()) {
    throw std::invalid_argument(fmt::format("the {} features are not finite as {}: scale them, or use double",
                                            set, c10::toString(examples.features.scalar_type())));
  }
}

}  // namespace

HyperCleaning::HyperCleaning(const CleaningData& data, double regularization,
                             const at::TensorOptions& tensors)
    : tensors_(tensors), data_(data.to(tensors)), regularization_(regularization) {
  require_nonnegative("regularization", regularization);
  check_finite(data_.train, "training");
  check_finite(data_.valid, "validation");
}

Tensor HyperCleaning::logits(const Tensor& features, const Tensor& w) const {
  return features.mm(w.view({data_.classes, data_.train.features.size(1)}).t());
}

Tensor HyperCleaning::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return weighted_cross_entropy(logits(batch_rows(data_.train.features, batch), w),
                                batch_rows(data_.train.labels, batch), batch_rows(x, batch).sigmoid()) +
         regularization_ * w.dot(w);
}

Tensor HyperCleaning::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return mean_cross_entropy(logits(batch_rows(data_.valid.features, batch), w),
                            batch_rows(data_.valid.labels, batch));
}

Tensor HyperCleaning::initial_inner(uint64_t /*seed*/) const {
  return at::zeros({data_.classes * data_.train.features.size(1)}, tensors_);
}

Tensor HyperCleaning::initial_outer(uint64_t /*seed*/) const {
  return at::zeros({data_.train.size()}, tensors_);
}

std::optional<InnerParts> HyperCleaning::inner_parts(const Tensor& w, const Tensor& x,
                                                     const Batch& batch) const {
  const Tensor labels = batch_rows(data_.train.labels, batch);
  const Tensor weights = batch_rows(x, batch).sigmoid();
  return InnerParts{
      logits(batch_rows(data_.train.features, batch), w),
      [labels, weights](const Tensor& outputs) { return weighted_cross_entropy(outputs, labels, weights); },
      regularization_ * w.dot(w)};
}

std::map<std::string, double> HyperCleaning::metrics(const Tensor& w, const Tensor& x) const {
  std::map<std::string, double> result{
      {"train_accuracy", accuracy_percent(logits(data_.train.features, w), data_.train.labels)},
      {"valid_accuracy", accuracy_percent(logits(data_.valid.features, w), data_.valid.labels)}};
  add_flag_scores(x, data_.replaced, data_.wrong, result);
  return result;
}

double HyperCleaning::smoothness_bound() const {
  const Tensor& features = data_.train.features;
  Random random(named_seed(0, "power-iteration"));
  Tensor v = random.normal({features.size(1)}, tensors_);
  double largest = 0;
  for (int i = 0; i < cleaning_power_iterations; ++i) {
    v = v / v.norm();
    v = features.t().mv(features.mv(v));
    largest = v.norm().item<double>();
    if (largest == 0) break;  // all features are zero
  }
  return 0.5 * largest / static_cast<double>(features.size(0)) + 2 * regularization_;
}

std::optional<LossConstants> HyperCleaning::loss_constants(const Tensor& x) const {
  return weighted_softmax_constants(dense_rows(data_.train.features), dense_rows(data_.valid.features), x,
                                    regularization_);
}

std::optional<EvaluationErrors> HyperCleaning::evaluation_errors(const Tensor& w, const Tensor& x) const {
  const WeightLayout layout{
      .classes = data_.classes, .features = data_.train.features.size(1), .by_feature = false};
  return weighted_softmax_errors(dense_rows(data_.train.features), dense_rows(data_.valid.features), layout,
                                 w, x, regularization_);
}

}  // namespace bilevel
