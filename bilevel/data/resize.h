#pragma once
// Images of one size made of images of another.

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel {

constexpr int64_t largest_image_side = int64_t{1} << 14;

// uint8, N x C x H x W -> N x C x size x size: means over areas along a side that shrinks, bilinear along one
// that grows; the ratio of the sides is not kept. Throws std::invalid_argument for a size below 1 or above
// largest_image_side.
Tensor resize_images(const Tensor& images, int64_t size);

}  // namespace bilevel
