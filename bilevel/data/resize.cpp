#include "bilevel/data/resize.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/data/large_tensor.h"

namespace bilevel {
namespace {

constexpr int64_t step_pixels = int64_t{1} << 24;  // floats of at most 64 MiB at a time, or one image

Tensor resize_some(const Tensor& images, PictureSize size) {
  Tensor pixels = images.to(at::kFloat);
  const int64_t height = std::min(images.size(2), size.height);
  const int64_t width = std::min(images.size(3), size.width);
  if (height != images.size(2) || width != images.size(3)) {
    pixels = at::adaptive_avg_pool2d(pixels, {height, width});
  }
  if (height != size.height || width != size.width) {
    pixels = at::upsample_bilinear2d(pixels, {size.height, size.width}, false);
  }
  return pixels.round().clamp(0, 255).to(at::kByte);
}

}  // namespace

Tensor resize_images(const Tensor& images, PictureSize size) {
  for (const int64_t side : {size.height, size.width}) {
    if (side >= 1 && side <= largest_image_side) continue;
    throw std::invalid_argument(
        fmt::format("image_size = {}: must be 1 to {} pixels", side, largest_image_side));
  }
  if (images.dim() != 4 || images.scalar_type() != at::kByte) {
    throw std::invalid_argument("resize_images: images must be bytes, N x C x H x W");
  }
  if (images.size(2) == size.height && images.size(3) == size.width) return images;
  const int64_t pixels = images.size(1) * std::max(images.size(2) * images.size(3), size.height * size.width);
  const int64_t step = std::max<int64_t>(step_pixels / std::max<int64_t>(pixels, 1), 1);
  Tensor result =
      images.is_cpu()
          ? empty_in_memory_or_file({images.size(0), images.size(1), size.height, size.width}, at::kByte)
          : at::empty({images.size(0), images.size(1), size.height, size.width}, images.options());
  for (int64_t begin = 0; begin < images.size(0); begin += step) {
    const int64_t count = std::min(step, images.size(0) - begin);
    result.narrow(0, begin, count).copy_(resize_some(images.narrow(0, begin, count), size));
  }
  return result;
}

}  // namespace bilevel
