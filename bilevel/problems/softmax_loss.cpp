#include "bilevel/problems/softmax_loss.h"

#include <ATen/ATen.h>

namespace bilevel {

Tensor cross_entropies(const Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::None);
}

Tensor mean_cross_entropy(const Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean);
}

Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& weights) {
  return (weights * cross_entropies(logits, labels)).mean();
}

double accuracy_percent(const Tensor& logits, const Tensor& labels) {
  return 100 * logits.detach().argmax(1).eq(labels).to(at::kDouble).mean().item<double>();
}

}  // namespace bilevel
