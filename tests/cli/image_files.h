#pragma once
// Small images in files, as a user brings them.

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "tests/temporary_folder.h"

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

// The bytes of a PNG file with one channel of 8 bits and stored, not packed, pixels (ISO/IEC 15948, RFC
// 1950).
inline std::string grey_png(uint32_t width, uint32_t height, const std::string& pixels) {
  const auto big_endian = [](uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
  };
  const auto chunk = [&](const std::string& type, const std::string& content) {
    uint32_t crc = 0xffffffff;
    for (const char byte : type + content) {
      crc ^= static_cast<unsigned char>(byte);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return big_endian(static_cast<uint32_t>(content.size())) + type + content + big_endian(~crc);
  };
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) rows += '\0' + pixels.substr(y * width, width);
  uint32_t a = 1, b = 0;
  for (const char byte : rows) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  const auto length = static_cast<uint32_t>(rows.size());  // of one block: below 65536
  std::string stream = "\x78\x01\x01";
  for (const uint32_t value : {length, ~length}) {
    stream += static_cast<char>(value & 0xff);
    stream += static_cast<char>(value >> 8 & 0xff);
  }
  stream += rows + big_endian(b << 16 | a);
  const std::string header = big_endian(width) + big_endian(height) + std::string("\x08\0\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", stream) + chunk("IEND", "");
}

}  // namespace bilevel::test
