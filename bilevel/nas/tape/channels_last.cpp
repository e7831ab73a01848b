#include "bilevel/nas/tape/channels_last.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <tuple>

#ifdef BILEVEL_HAS_CUDA
#include <c10/cuda/CUDAStream.h>

#include "bilevel/nas/tape/tensor_cores.h"
#endif

namespace bilevel::nas {
#ifdef BILEVEL_HAS_CUDA
namespace {

float* pointer(const Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; }

}  // namespace
#endif

Tensor convolved(const Tensor& image, const Tensor& weights, const ConvolutionForm& form) {
  return at::conv2d(image, weights, {}, form.stride, form.padding, form.dilation, form.groups)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

Tensor in_image(const Tensor& adjoint, const Tensor& image, const Tensor& weights, const ConvolutionForm& f) {
  return std::get<0>(at::convolution_backward(adjoint, image, weights, at::OptionalIntArrayRef(),
                                              {f.stride, f.stride}, {f.padding, f.padding},
                                              {f.dilation, f.dilation}, false, {0, 0}, f.groups,
                                              std::array<bool, 3>{true, false, false}))
      .contiguous(at::MemoryFormat::ChannelsLast);
}

Tensor in_weights(const Tensor& adjoint, const Tensor& image, const Tensor& weights,
                  const ConvolutionForm& f) {
  return std::get<1>(at::convolution_backward(
      adjoint, image, weights, at::OptionalIntArrayRef(), {f.stride, f.stride}, {f.padding, f.padding},
      {f.dilation, f.dilation}, false, {0, 0}, f.groups, std::array<bool, 3>{false, true, false}));
}

Tensor weight_shares([[maybe_unused]] const Tensor& adjoint, [[maybe_unused]] const Tensor& image,
                     [[maybe_unused]] const Tensor& weights, [[maybe_unused]] const ConvolutionForm& f,
                     [[maybe_unused]] const Tensor& adjoint_too, [[maybe_unused]] const Tensor& image_too) {
#ifdef BILEVEL_HAS_CUDA
  if (!image.is_cuda() || image.scalar_type() != at::kFloat || !at::globalContext().allowTF32CuDNN() ||
      f.stride != 1 || f.dilation != 1 || f.groups != 1 || 2 * f.padding + 1 != weights.size(2)) {
    return {};
  }
  const auto whole = [](int64_t n) { return static_cast<int>(n); };
  fused::WeightGradient work{};
  work.images = whole(image.size(0));
  work.height = whole(image.size(2));
  work.width = whole(image.size(3));
  work.channels = whole(image.size(1));
  work.outputs = whole(weights.size(0));
  work.kernel = whole(weights.size(2));
  work.pairs = image_too.defined() ? 2 : 1;
  if (!fused::fits_tensor_cores(work)) return {};
  const Tensor partial = at::empty({fused::shares_of(work), weights.numel()}, image.options());
  work.image[0] = pointer(image);
  work.adjoint[0] = pointer(adjoint);
  work.image[1] = pointer(image_too);
  work.adjoint[1] = pointer(adjoint_too);
  work.partial = pointer(partial);
  fused::weight_gradient(work, c10::cuda::getCurrentCUDAStream().stream());
  return partial;
#else
  return {};
#endif
}

void add_shares([[maybe_unused]] const std::vector<Tensor>& partial,
                [[maybe_unused]] const std::vector<Tensor>& out) {
#ifdef BILEVEL_HAS_CUDA
  for (size_t first = 0; first < partial.size(); first += fused::most_gradients) {
    const size_t end = std::min(partial.size(), first + fused::most_gradients);
    fused::ShareSums work{};
    for (size_t i = first; i < end; ++i) {
      work.gradient[work.gradients++] = {pointer(partial[i]), pointer(out[i]),
                                         static_cast<int>(partial[i].size(0)),
                                         static_cast<int>(partial[i].size(1)), 0};
    }
    fused::add_shares(work, c10::cuda::getCurrentCUDAStream().stream());
  }
#endif
}

}  // namespace bilevel::nas
