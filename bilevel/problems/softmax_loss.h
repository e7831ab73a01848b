#pragma once
// Softmax cross entropy, as every classification problem here uses it: fused log-softmax and negative log
// likelihood, safe for large logits and twice differentiable.

#include "bilevel/core/tensor.h"

namespace bilevel {

// logits: examples x classes; labels: int64 on the same device.
Tensor cross_entropies(const Tensor& logits, const Tensor& labels);     // one per example
Tensor mean_cross_entropy(const Tensor& logits, const Tensor& labels);  // scalar
// The mean over the examples of weight_i * cross entropy_i: divided by their number, not by the sum of the
// weights.
Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& weights);

double accuracy_percent(const Tensor& logits, const Tensor& labels);

}  // namespace bilevel
