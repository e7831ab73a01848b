#pragma once
// Data hyper-cleaning with a small convolutional network, the deep version of hyper_cleaning.h (FSLA, section
// 6.2: a "4-layer CNN" without a regulariser; the paper gives no sizes).
//
//     g(w, x) = mean_i sigmoid(x_i) * cross entropy_i + regularization |w|^2,    f(w) = mean cross entropy on
//     validation data
//
//     3x3 convolution, ReLU, 2x2 max pool, 3x3 convolution, ReLU, 2x2 max pool, linear, ReLU, linear

#include <cstdint>
#include <optional>
#include <vector>

#include "bilevel/core/problem.h"
#include "bilevel/problems/cleaning_data.h"

namespace bilevel {

struct CnnOptions {
  int64_t first_channels = 16;
  int64_t second_channels = 32;
  int64_t hidden = 64;        // with these sizes 105,866 weights at 28 x 28
  double regularization = 0;  // of |w|^2
  void validate() const;
};

class CnnCleaning : public Problem {
 public:
  // `image` = height and width; a row of the features is one image of one channel, row by row. Throws
  // std::invalid_argument where the features are no images of that size.
  CnnCleaning(const CleaningData& data, const std::vector<int64_t>& image, const CnnOptions& options,
              const at::TensorOptions& tensors);

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  Tensor initial_inner(uint64_t seed) const override;  // He et al. 2015: normal * sqrt(2 / inputs), no bias
  Tensor initial_outer(uint64_t seed) const override;  // zeros
  int64_t inner_samples() const override { return data_.train.size(); }
  int64_t outer_samples() const override { return data_.valid.size(); }
  const Layout* inner_layout() const override { return &weights_; }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch& batch) const override;
  // Accuracies and F1 as HyperCleaning.
  std::map<std::string, double> metrics(const Tensor& w, const Tensor& x) const override;

  Tensor logits(const Tensor& features, const Tensor& w) const;  // differentiable
  // The network itself, of images x 1 x height x width, with its weights apart in the layout's order.
  static Tensor network(const Tensor& images, const std::vector<Tensor>& parts);
  // The same without a graph and a part at a time, for sets that would not fit with all their activations.
  Tensor scores(const Tensor& features, const Tensor& w) const;

 private:
  CnnOptions options_;
  at::TensorOptions tensors_;
  CleaningData data_;
  int64_t height_, width_;
  Layout weights_;
};

}  // namespace bilevel
