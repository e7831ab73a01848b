#pragma once
// at::conv2d with second derivatives at the price of first ones. A convolution is bilinear in image and
// weights, so whatever its first and second derivatives need is again a convolution, or the gradient of one
// in its image or in its weights, for which LibTorch has fast code on every device. LibTorch's own second
// derivative takes other ways: transposed convolutions without fast code on the CPU, and convolutions whose
// kernel is the whole image.

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel::nas {

struct ConvolutionForm {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};
// Without bias. Differentiable twice: a third derivative throws.
Tensor convolution(const Tensor& image, const Tensor& weights, const ConvolutionForm& form);

}  // namespace bilevel::nas
