#include "bilevel/problems/cnn_cleaning.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/core/require.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/label_noise.h"
#include "bilevel/problems/softmax_loss.h"

namespace bilevel {
namespace {

constexpr int64_t images_at_a_time = 500;  // of scores()

}  // namespace

void CnnOptions::validate() const {
  for (const auto& [option, value] :
       {std::pair{"first_channels", first_channels}, std::pair{"second_channels", second_channels},
        std::pair{"hidden", hidden}}) {
    require_at_least("cnn", option, value, 1);
  }
  require_nonnegative("regularization", regularization);
}

CnnCleaning::CnnCleaning(const CleaningData& data, const std::vector<int64_t>& image,
                         const CnnOptions& options, const at::TensorOptions& tensors)
    : options_(options), tensors_(tensors), data_(data.to(tensors)), height_(0), width_(0) {
  options_.validate();
  const int64_t pixels = data_.train.features.size(1);
  if (image.size() != 2 || image[0] < 4 || image[1] < 4 || image[0] * image[1] != pixels ||
      data_.valid.features.size(1) != pixels) {
    throw std::invalid_argument(
        fmt::format("cnn: needs images of height x width, at least 4 x 4, one channel, but an example has {} "
                    "features{}",
                    pixels, image.empty() ? "" : fmt::format(" of {}", fmt::join(image, " x "))));
  }
  height_ = image[0];
  width_ = image[1];
  const int64_t flat = options_.second_channels * (height_ / 4) * (width_ / 4);
  weights_.add("first.weight", {options_.first_channels, 1, 3, 3});
  weights_.add("first.bias", {options_.first_channels});
  weights_.add("second.weight", {options_.second_channels, options_.first_channels, 3, 3});
  weights_.add("second.bias", {options_.second_channels});
  weights_.add("hidden.weight", {options_.hidden, flat});
  weights_.add("hidden.bias", {options_.hidden});
  weights_.add("output.weight", {data_.classes, options_.hidden});
  weights_.add("output.bias", {data_.classes});
}

Tensor CnnCleaning::logits(const Tensor& features, const Tensor& w) const {
  return network(features.reshape({features.size(0), 1, height_, width_}), weights_.split(w));
}

Tensor CnnCleaning::network(const Tensor& images, const std::vector<Tensor>& part) {
  const auto block = [](const Tensor& input, const Tensor& weight, const Tensor& bias) {
    return at::max_pool2d(at::conv2d(input, weight, bias, /*stride=*/1, /*padding=*/1).relu(), 2);
  };
  const Tensor flat = block(block(images, part[0], part[1]), part[2], part[3]).flatten(1);
  const Tensor hidden = at::addmm(part[5], flat, part[4].t()).relu();
  return at::addmm(part[7], hidden, part[6].t());
}

Tensor CnnCleaning::scores(const Tensor& features, const Tensor& w) const {
  const at::NoGradGuard no_graph;
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < features.size(0); begin += images_at_a_time) {
    const int64_t end = std::min(begin + images_at_a_time, features.size(0));
    parts.push_back(logits(features.slice(0, begin, end).to(tensors_), w));
  }
  return at::cat(parts);
}

Tensor CnnCleaning::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  const Tensor loss =
      weighted_cross_entropy(logits(batch_rows(data_.train.features, batch), w),
                             batch_rows(data_.train.labels, batch), batch_rows(x, batch).sigmoid());
  return options_.regularization > 0 ? loss + options_.regularization * w.dot(w) : loss;
}

Tensor CnnCleaning::outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const {
  if (batch.is_full() && !w.requires_grad()) {  // a report, not a derivative
    return mean_cross_entropy(scores(data_.valid.features, w), data_.valid.labels);
  }
  return mean_cross_entropy(logits(batch_rows(data_.valid.features, batch), w),
                            batch_rows(data_.valid.labels, batch));
}

Tensor CnnCleaning::initial_inner(uint64_t seed) const {
  Random random(named_seed(seed, "cnn-w"));
  std::vector<Tensor> parts;
  for (const Layout::Entry& entry : weights_.entries()) {
    if (entry.shape.size() == 1) {
      parts.push_back(at::zeros(entry.shape, tensors_));
      continue;
    }
    const auto inputs = static_cast<double>(entry.size / entry.shape[0]);
    parts.push_back(random.normal(entry.shape, tensors_) * std::sqrt(2 / inputs));
  }
  return weights_.flatten(parts);
}

Tensor CnnCleaning::initial_outer(uint64_t /*seed*/) const {
  return at::zeros({data_.train.size()}, tensors_);
}

std::optional<InnerParts> CnnCleaning::inner_parts(const Tensor& w, const Tensor& x,
                                                   const Batch& batch) const {
  const Tensor labels = batch_rows(data_.train.labels, batch);
  const Tensor weights = batch_rows(x, batch).sigmoid();
  return InnerParts{
      logits(batch_rows(data_.train.features, batch), w),
      [labels, weights](const Tensor& outputs) { return weighted_cross_entropy(outputs, labels, weights); },
      options_.regularization > 0 ? options_.regularization * w.dot(w) : Tensor()};
}

std::map<std::string, double> CnnCleaning::metrics(const Tensor& w, const Tensor& x) const {
  std::map<std::string, double> result{
      {"train_accuracy", accuracy_percent(scores(data_.train.features, w), data_.train.labels)},
      {"valid_accuracy", accuracy_percent(scores(data_.valid.features, w), data_.valid.labels)}};
  add_flag_scores(x, data_.replaced, data_.wrong, result);
  return result;
}

}  // namespace bilevel
