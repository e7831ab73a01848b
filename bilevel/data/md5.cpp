#include "bilevel/data/md5.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace bilevel {
namespace {

constexpr size_t md5_block_bytes = 64;

// RFC 1321 defines them so: 2^32 times the absolute sine of 1 .. 64 radians.
const std::array<uint32_t, 64>& sines() {
  static const std::array<uint32_t, 64> table = [] {
    std::array<uint32_t, 64> values{};
    for (size_t i = 0; i < 64; ++i) {
      values[i] = static_cast<uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 0x1p32));
    }
    return values;
  }();
  return table;
}

constexpr std::array<std::array<int, 4>, 4> shifts{
    {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

void mix(std::array<uint32_t, 4>& state, const unsigned char* block) {
  std::array<uint32_t, 16> words{};
  for (size_t i = 0; i < 16; ++i) {
    words[i] = static_cast<uint32_t>(block[4 * i]) | static_cast<uint32_t>(block[4 * i + 1]) << 8 |
               static_cast<uint32_t>(block[4 * i + 2]) << 16 | static_cast<uint32_t>(block[4 * i + 3]) << 24;
  }
  const std::array<uint32_t, 64>& sine = sines();
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  const auto step = [&](uint32_t value, size_t i, size_t word) {
    const uint32_t sum = a + value + sine[i] + words[word];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, shifts[i / 16][i % 4]);
  };
  for (size_t i = 0; i < 16; ++i) step((b & c) | (~b & d), i, i);
  for (size_t i = 16; i < 32; ++i) step((d & b) | (~d & c), i, (5 * i + 1) % 16);
  for (size_t i = 32; i < 48; ++i) step(b ^ c ^ d, i, (3 * i + 5) % 16);
  for (size_t i = 48; i < 64; ++i) step(c ^ (b | ~d), i, (7 * i) % 16);
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}

}  // namespace

Md5Digest md5(std::string_view bytes) {
  std::array<uint32_t, 4> state{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t rest = bytes.size();
  for (; rest >= md5_block_bytes; rest -= md5_block_bytes, data += md5_block_bytes) mix(state, data);
  // What is left, a one bit, zeros, and the length in bits.
  std::array<unsigned char, 2 * md5_block_bytes> tail{};
  if (rest > 0) std::memcpy(tail.data(), data, rest);
  tail[rest] = 0x80;
  const size_t length = rest + 9 <= md5_block_bytes ? md5_block_bytes : 2 * md5_block_bytes;
  const uint64_t bits = 8 * static_cast<uint64_t>(bytes.size());
  for (size_t i = 0; i < 8; ++i) tail[length - 8 + i] = static_cast<unsigned char>(bits >> (8 * i));
  for (size_t at = 0; at < length; at += md5_block_bytes) mix(state, tail.data() + at);
  Md5Digest digest{};
  for (size_t i = 0; i < 16; ++i) digest[i] = static_cast<unsigned char>(state[i / 4] >> (8 * (i % 4)));
  return digest;
}

std::string md5_hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : md5(bytes)) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace bilevel
