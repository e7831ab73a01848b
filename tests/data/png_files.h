#pragma once
// PNG files made by hand, after ISO/IEC 15948 and RFC 1950, with stored blocks: no libpng is needed to make
// one.

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/data/files.h"

namespace bilevel::test {

enum PngColour : char { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgb_alpha = 6 };

inline std::string png_chunk(std::string_view type, const std::string& content) {
  const std::string body = std::string(type) + content;
  return big_endian(static_cast<uint32_t>(content.size())) + body + big_endian(crc32(body));
}

inline std::string zlib_stored(std::string_view content) {
  uint32_t a = 1, b = 0;
  for (const char byte : content) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  std::string stream("\x78\x01", 2);
  std::string_view left = content;
  do {
    const std::string_view block = left.substr(0, 60000);
    left.remove_prefix(block.size());
    const auto length = static_cast<uint32_t>(block.size());
    stream += left.empty() ? '\1' : '\0';
    stream += little_endian(length, 2) + little_endian(~length, 2);
    stream += block;
  } while (!left.empty());
  return stream + big_endian(b << 16 | a);
}

// `rows`: the scanlines, each with its filter byte. `before`: chunks between the header and the pixels.
inline std::string png_file(uint32_t width, uint32_t height, PngColour colour, char depth,
                            const std::string& rows, const std::string& before = "", char interlace = 0) {
  const std::string header =
      big_endian(width) + big_endian(height) + depth + static_cast<char>(colour) + '\0' + '\0' + interlace;
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + before + png_chunk("IDAT", zlib_stored(rows)) +
         png_chunk("IEND", "");
}

// One value everywhere; three channels if `colour` is rgb.
inline std::string plain_png(uint32_t width, uint32_t height, unsigned char value, PngColour colour = grey) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0' + std::string((colour == rgb ? 3 : 1) * width, static_cast<char>(value));
  }
  return png_file(width, height, colour, 8, rows);
}

}  // namespace bilevel::test
