#pragma once
// Tensors that may be larger than memory: they are mapped from files, so that the system reads what is asked
// for and may drop it again. A rank that takes a piece of every batch reads that piece.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "bilevel/core/tensor.h"

namespace bilevel {

// From how many bytes on data are kept in files: 512 MiB, or what the variable BILEVEL_MAP_BYTES says.
int64_t bytes_to_map();

// What a file holds from `offset` on, row by row. What is written to the tensor does not reach the file,
// which must not be shortened while the tensor lives. Throws std::runtime_error naming the file.
Tensor map_file(const std::string& path, int64_t offset, at::IntArrayRef shape, at::ScalarType type);

// Without content: in memory, or from bytes_to_map() on in a file without a name in $TMPDIR, or /var/tmp
// where that is not set. Throws std::runtime_error where the folder has no room.
Tensor empty_in_memory_or_file(at::IntArrayRef shape, at::ScalarType type);

// index_select along the first dimension, into such a tensor, by parts.
Tensor select_rows(const Tensor& from, const Tensor& positions);

}  // namespace bilevel
