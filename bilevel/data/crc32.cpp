#include "bilevel/data/crc32.h"

#include <array>

namespace bilevel {
namespace {

using CrcTable = std::array<uint32_t, 256>;

constexpr CrcTable crc_table(uint32_t polynomial) {  // with its bits reversed
  CrcTable table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? polynomial : 0);
    table[i] = value;
  }
  return table;
}

uint32_t crc_of(const CrcTable& table, std::string_view bytes) {
  uint32_t value = 0xffffffff;
  for (const char byte : bytes) {
    value = table[(value ^ static_cast<unsigned char>(byte)) & 0xffU] ^ (value >> 8U);
  }
  return ~value;
}

}  // namespace

uint32_t crc32(std::string_view bytes) {
  static constexpr CrcTable table = crc_table(0xedb88320);
  return crc_of(table, bytes);
}

uint32_t crc32c(std::string_view bytes) {
  static constexpr CrcTable table = crc_table(0x82f63b78);
  return crc_of(table, bytes);
}

}  // namespace bilevel
