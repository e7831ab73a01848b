#pragma once
// Small images in files, as a user brings them.

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel::test {

// The bytes of an IDX file.
inline std::string idx(const std::vector<int64_t>& shape, const Tensor& values) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const int64_t length : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(length >> shift & 0xff);
  }
  const Tensor bytes = values.to(at::kByte).contiguous();
  return file.append(reinterpret_cast<const char*>(bytes.data_ptr<uint8_t>()),
                     static_cast<size_t>(bytes.numel()));
}

inline void put(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace bilevel::test
