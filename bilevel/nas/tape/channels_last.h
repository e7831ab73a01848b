#pragma once
// Convolutions of tensors whose channels lie together, without a graph: the value, and its adjoints in the
// image and in the weights. cuDNN's or oneDNN's, but for gradients in weights, which have a kernel of their
// own (tensor_cores.h).

#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/nas/convolution.h"

namespace bilevel::nas {

Tensor convolved(const Tensor& image, const Tensor& weights, const ConvolutionForm& form);
Tensor in_image(const Tensor& adjoint, const Tensor& image, const Tensor& weights,
                const ConvolutionForm& form);
Tensor in_weights(const Tensor& adjoint, const Tensor& image, const Tensor& weights,
                  const ConvolutionForm& form);

// The gradient in the weights of one pair of adjoint and image, or of two added up, as shares that are still
// to be added (along dimension 0); undefined where the tensor cores' kernel does not serve, for which TF32
// must be allowed.
Tensor weight_shares(const Tensor& adjoint, const Tensor& image, const Tensor& weights,
                     const ConvolutionForm& form, const Tensor& adjoint_too, const Tensor& image_too);
// out[i] = the sum of shares[i].
void add_shares(const std::vector<Tensor>& shares, const std::vector<Tensor>& out);

}  // namespace bilevel::nas
