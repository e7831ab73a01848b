#include "bilevel/problems/learned_rate.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/softmax_loss.h"

namespace bilevel {

void LearnedRateOptions::validate() const {
  data.validate();
  require_at_least("hidden", hidden, 1);
  // Both are stored as logarithms.
  for (const auto& [name, value] : {std::pair{"initial_rate", initial_rate},
                                    std::pair{"initial_regularization", initial_regularization}}) {
    require_positive(name, value);
  }
}

LearnedRate::LearnedRate(const LearnedRateOptions& options) : options_(options) {
  options_.validate();
  train_ =
      draw_gaussian_classes(options_.data, options_.samples, options_.seed, "train").to(options_.tensors);
  valid_ = draw_gaussian_classes(options_.data, options_.valid_samples, options_.seed, "valid")
               .to(options_.tensors);
  weights_.add("hidden.weight", {options_.hidden, options_.data.features});
  weights_.add("output.weight", {options_.data.classes, options_.hidden});
  outer_.add("log_rates", {2});
  outer_.add("start", {weights_.size()});
  if (options_.learn_regularization) outer_.add("log_regularizers", {2});
}

Tensor LearnedRate::logits(const Tensor& features, const Tensor& w) const {
  const std::vector<Tensor> parts = weights_.split(w);
  return features.mm(parts[0].t()).tanh().mm(parts[1].t());
}

Tensor LearnedRate::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor loss =
      mean_cross_entropy(logits(batch_rows(train_.features, batch), w), batch_rows(train_.labels, batch));
  if (!options_.learn_regularization) return loss + options_.initial_regularization * w.dot(w);
  return loss + (weights_.repeat_per_entry(outer_.split(x)[2].exp()) * w * w).sum();
}

Tensor LearnedRate::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  return mean_cross_entropy(logits(batch_rows(valid_.features, batch), w), batch_rows(valid_.labels, batch));
}

Tensor LearnedRate::initial_inner(uint64_t seed) const {
  Random random(named_seed(seed, "learned-rate-w"));
  const Tensor hidden = random.normal({options_.hidden, options_.data.features}, options_.tensors) /
                        std::sqrt(static_cast<double>(options_.data.features));
  const Tensor output = random.normal({options_.data.classes, options_.hidden}, options_.tensors) /
                        std::sqrt(static_cast<double>(options_.hidden));
  return weights_.flatten({hidden, output});
}

Tensor LearnedRate::initial_outer(uint64_t seed) const {
  std::vector<Tensor> parts{at::full({2}, std::log(options_.initial_rate), options_.tensors),
                            initial_inner(seed)};
  if (options_.learn_regularization) {
    parts.push_back(at::full({2}, std::log(options_.initial_regularization), options_.tensors));
  }
  return outer_.flatten(parts);
}

Tensor LearnedRate::inner_start(const Tensor& x) const { return outer_.split(x)[1]; }
Tensor LearnedRate::inner_rate(const Tensor& x) const { return outer_.split(x)[0].exp(); }

std::map<std::string, double> LearnedRate::metrics(const Tensor& w, const Tensor& /*x*/) const {
  return {{"train_accuracy", accuracy_percent(logits(train_.features, w), train_.labels)},
          {"valid_accuracy", accuracy_percent(logits(valid_.features, w), valid_.labels)}};
}

}  // namespace bilevel
