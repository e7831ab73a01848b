#pragma once
// NumPy's array files (.npy, format versions 1, 2 and 3), read as if written by an enemy: nothing in a file
// is believed, and no memory is taken, before it agrees with the file's real size. Pickled objects are never
// loaded.

#include <string>

#include "bilevel/core/tensor.h"

namespace bilevel {

// A contiguous CPU tensor. Bytes of either order and arrays of C or Fortran order are read:
//   f2 f4 f8 i1 i2 i4 i8 u1 b1 as they are; u2 as int32 and u4 as int64, which LibTorch 1.13 has no unsigned
//   types for.
// Throws std::runtime_error naming the file, the offset, what was expected, what was found, and a hint.
Tensor read_npy(const std::string& path);

// Writes version 1.0 beside `path` and renames, so that a reader sees the old file or the whole new one.
// Throws std::invalid_argument for a tensor that NumPy has no plain type for, std::runtime_error for a full
// disk.
void write_npy(const std::string& path, const Tensor& tensor);

// The same of a file's content in memory. `name` stands in messages where a path does otherwise.
Tensor npy_of(const std::string& name, const std::string& bytes);
std::string npy_bytes(const Tensor& tensor);

}  // namespace bilevel
