#include "bilevel/problems/labelled_rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/linear_scores.h"
#include "bilevel/problems/softmax_loss.h"

namespace bilevel {

void LabelledRows::validate(int64_t classes, const char* set) const {
  require_at_least("classes", classes, 2);
  if (features.rows() == 0) throw std::invalid_argument(fmt::format("the {} set has no examples", set));
  if (!labels.defined() || labels.dim() != 1 || labels.scalar_type() != at::kLong ||
      !labels.device().is_cpu() || labels.numel() != features.rows()) {
    throw std::invalid_argument(fmt::format(
        "the {} labels must be a vector of {} int64 on the CPU, one per "
        "example, but are {}",
        set, features.rows(),
        labels.defined() ? fmt::format("{} of {}", labels.numel(), c10::toString(labels.scalar_type()))
                         : std::string("undefined")));
  }
  const auto smallest = labels.min().item<int64_t>(), largest = labels.max().item<int64_t>();
  if (smallest < 0 || largest >= classes) {
    throw std::invalid_argument(fmt::format("the {} labels run from {} to {}: they must be 0 .. {}", set,
                                            smallest, largest, classes - 1));
  }
  const Tensor& values = features.is_sparse() ? features.by_rows().values : features.dense();
  if (!values.isfinite().all().item<bool>()) {
    throw std::invalid_argument(fmt::format("the {} features are not finite as {}: scale them, or use double",
                                            set, c10::toString(values.scalar_type())));
  }
}

void validate_sets(const LabelledRows& train, const LabelledRows& valid, int64_t classes) {
  train.validate(classes, "training");
  valid.validate(classes, "validation");
  if (train.features.features() != valid.features.features() ||
      train.features.dtype() != valid.features.dtype()) {
    throw std::invalid_argument(fmt::format(
        "the training set has {} features of {}, but the validation set {} of {}: they must agree",
        train.features.features(), c10::toString(train.features.dtype()), valid.features.features(),
        c10::toString(valid.features.dtype())));
  }
}

double accuracy_percent(const LabelledRows& rows, const Tensor& matrix) {
  return accuracy_percent(linear_scores(rows.features, {}, matrix.detach()), rows.labels);
}

Tensor mean_cross_entropy(const LabelledRows& rows, const Tensor& matrix, const Batch& batch) {
  const Tensor labels = batch_rows(rows.labels, batch);  // checks the index
  return mean_cross_entropy(linear_scores(rows.features, batch.index, matrix), labels);
}

OuterGradients mean_outer_gradients(const LabelledRows& rows, const WeightLayout& layout, const Tensor& w,
                                    const Tensor& x, const Batch& batch) {
  const Tensor labels = batch_rows(rows.labels, batch).contiguous();
  const double share = 1 / static_cast<double>(labels.numel());
  const SoftmaxTerms terms{.data = rows.features,
                           .index = batch.is_full() ? Tensor() : batch.index.contiguous(),
                           .labels = labels,
                           .weights = at::full({labels.numel()}, share, w.detach().options()),
                           .ridge = {}};
  auto [gradient, losses] = make_softmax_point(terms, layout, w, false)->gradient_and_cross_entropies();
  return {.loss = losses.mean(), .w = std::move(gradient), .x = at::zeros_like(x.detach())};
}

}  // namespace bilevel
