#pragma once
// IDX files, the format of MNIST and its relatives, plain or .gz: a magic of two zeros, a type and a number
// of dimensions, the dimensions, then the values, all big-endian (https://yann.lecun.com/exdb/mnist).

#include <cstdint>
#include <string>

#include "bilevel/core/tensor.h"

namespace bilevel {

// Any type (u8 i8 i16 i32 f32 f64) and up to 8 dimensions; contiguous, CPU. The header is checked against the
// file's size before memory is taken. Throws std::runtime_error naming the file, the offset, what was
// expected, what was found, and a hint.
Tensor read_idx(const std::string& path);

// Bytes of at least two dimensions, as one row per example: uint8, N x (product of the rest).
Tensor read_idx_images(const std::string& path);
// Bytes of one dimension, each below `classes`: int64, N.
Tensor read_idx_labels(const std::string& path, int64_t classes);

}  // namespace bilevel
