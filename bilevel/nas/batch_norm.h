#pragma once
// Batch norm by the batch's own statistics on the CPU, with first and second derivatives in closed form: one
// pass for the sums of a channel and one for the result, while the channel is in the cache. LibTorch composes
// its second derivative of some thirty elementwise operations, each of which goes through memory.
//
// Where ranks divide a batch, statistics are those of the whole batch: the sums of all channels are added up
// over the ranks in one call in the value, one in the gradient and two in a product with a second derivative.
// Derivatives in x are those of the sum of all ranks' losses; derivatives in scale and shift are a rank's own
// part of them, to be summed with all others in weights.

#include <memory>

#include "bilevel/core/tensor.h"

namespace bilevel::nas {

class NormSums;  // batch_ranks.h

struct BatchMoments {
  Tensor mean, variance;  // per channel; the variance is the mean square
  double count = 0;       // numbers that they are of
};

// scale (x - mean) / sqrt(variance + epsilon) + shift per channel; scale or shift undefined = 1, 0.
// Differentiable twice: a third derivative throws. `ranks` null = these images alone; `seen`, where it is not
// null, gets the statistics.
Tensor normalize_batch(const Tensor& x, const Tensor& scale, const Tensor& shift, double epsilon,
                       const std::shared_ptr<NormSums>& ranks = nullptr, BatchMoments* seen = nullptr);

// The same over ranks as tensor operations that automatic differentiation goes through, for other devices and
// as a reference.
Tensor normalize_batch_by_operations(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                     double epsilon, const std::shared_ptr<NormSums>& ranks,
                                     BatchMoments* seen = nullptr);

// Float and double on the CPU; at::batch_norm serves the others.
bool can_normalize_batch(const Tensor& x);

}  // namespace bilevel::nas
