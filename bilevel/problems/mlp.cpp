#include "bilevel/problems/mlp.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/softmax_loss.h"

namespace bilevel {

void MlpOptions::validate() const {
  data.validate();
  require_at_least("hidden", hidden, 1);
  if (!std::isfinite(initial_log)) {
    throw std::invalid_argument(fmt::format("initial_log = {}: must be finite", initial_log));
  }
}

Mlp::Mlp(const MlpOptions& options) : options_(options) {
  options_.validate();
  train_ =
      draw_gaussian_classes(options_.data, options_.samples, options_.seed, "train").to(options_.tensors);
  valid_ = draw_gaussian_classes(options_.data, options_.valid_samples, options_.seed, "valid")
               .to(options_.tensors);
  weights_.add("hidden.weight", {options_.hidden, options_.data.features});
  weights_.add("hidden.bias", {options_.hidden});
  weights_.add("output.weight", {options_.data.classes, options_.hidden});
  weights_.add("output.bias", {options_.data.classes});
  outer_.add("log_regularizers", {static_cast<int64_t>(weights_.entries().size())});
  outer_.add("example_logits", {options_.samples});
}

Tensor Mlp::logits(const Tensor& features, const Tensor& w) const {
  const std::vector<Tensor> parts = weights_.split(w);
  const Tensor hidden = at::addmm(parts[1], features, parts[0].t()).tanh();
  return at::addmm(parts[3], hidden, parts[2].t());
}

Tensor Mlp::regularizer(const Tensor& w, const Tensor& log_regularizers) const {
  return (weights_.repeat_per_entry(log_regularizers.exp()) * w * w).sum();
}

Tensor Mlp::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const std::vector<Tensor> outer = outer_.split(x);
  return weighted_cross_entropy(logits(batch_rows(train_.features, batch), w),
                                batch_rows(train_.labels, batch), batch_rows(outer[1], batch).sigmoid()) +
         regularizer(w, outer[0]);
}

Tensor Mlp::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return mean_cross_entropy(logits(batch_rows(valid_.features, batch), w), batch_rows(valid_.labels, batch));
}

Tensor Mlp::initial_inner(uint64_t seed) const {
  Random random(named_seed(seed, "mlp-w"));
  auto scaled = [&](int64_t outputs, int64_t inputs) {
    return random.normal({outputs, inputs}, options_.tensors) / std::sqrt(static_cast<double>(inputs));
  };
  const Tensor hidden = scaled(options_.hidden, options_.data.features);
  const Tensor output = scaled(options_.data.classes, options_.hidden);
  return weights_.flatten({hidden, at::zeros({options_.hidden}, options_.tensors), output,
                           at::zeros({options_.data.classes}, options_.tensors)});
}

Tensor Mlp::initial_outer(uint64_t /*seed*/) const {
  const auto tensors = static_cast<int64_t>(weights_.entries().size());
  return outer_.flatten({at::full({tensors}, options_.initial_log, options_.tensors),
                         at::zeros({options_.samples}, options_.tensors)});
}

std::optional<InnerParts> Mlp::inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const std::vector<Tensor> outer = outer_.split(x);
  const Tensor labels = batch_rows(train_.labels, batch);
  const Tensor weights = batch_rows(outer[1], batch).sigmoid();
  return InnerParts{
      logits(batch_rows(train_.features, batch), w),
      [labels, weights](const Tensor& outputs) { return weighted_cross_entropy(outputs, labels, weights); },
      regularizer(w, outer[0])};
}

std::map<std::string, double> Mlp::metrics(const Tensor& w, const Tensor& /*x*/) const {
  return {{"train_accuracy", accuracy_percent(logits(train_.features, w), train_.labels)},
          {"valid_accuracy", accuracy_percent(logits(valid_.features, w), valid_.labels)}};
}

}  // namespace bilevel
