#pragma once
// Images of one size made of images of another.

#include <cstdint>

#include "bilevel/core/tensor.h"
#include "bilevel/data/picture_size.h"

namespace bilevel {

constexpr int64_t largest_image_side = int64_t{1} << 14;

// uint8, N x C x H x W -> N x C x height x width: means over areas along a side that shrinks, bilinear along
// one that grows; the ratio of the sides is not kept. Throws std::invalid_argument for a size below 1 or
// above largest_image_side.
Tensor resize_images(const Tensor& images, PictureSize size);
inline Tensor resize_images(const Tensor& images, int64_t side) {
  return resize_images(images, {side, side});
}

}  // namespace bilevel
