// PNG images, as they come and with the checksums of their chunks put right, which chance would not find.
#include "bilevel/data/png.h"

#include <array>

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

uint32_t crc32(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        made[i] = (made[i] & 1U) != 0 ? made[i] >> 1U ^ 0xedb88320U : made[i] >> 1U;
    }
    return made;
  }();
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) crc = crc >> 8U ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
  return ~crc;
}

std::string repaired(std::string_view bytes) {
  std::string file(bytes);
  for (size_t at = 8; at + 12 <= file.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8U | static_cast<unsigned char>(file[at + i]);
    if (length > file.size() - at - 12) break;
    const uint32_t crc = crc32(std::string_view(file).substr(at + 4, length + 4));
    at += length + 8;
    for (size_t i = 0; i < 4; ++i) file[at++] = static_cast<char>(crc >> (24 - 8 * i) & 0xffU);
  }
  return file;
}

int give_png(std::string_view bytes) {
  const auto reader = [](const auto& file) { (void)read_png(file); };
  return taken_file(path_of(bytes), reader) + taken_file(path_of(repaired(bytes)), reader);
}

const Register png_target("png", give_png);

}  // namespace
}  // namespace bilevel::fuzz
