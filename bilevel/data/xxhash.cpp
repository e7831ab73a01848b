#include "bilevel/data/xxhash.h"

#include <array>
#include <bit>
#include <cstring>

namespace bilevel {
namespace {

constexpr uint64_t xx_prime1 = 0x9e3779b185ebca87;
constexpr uint64_t xx_prime2 = 0xc2b2ae3d27d4eb4f;
constexpr uint64_t xx_prime3 = 0x165667b19e3779f9;
constexpr uint64_t xx_prime4 = 0x85ebca77c2b2ae63;
constexpr uint64_t xx_prime5 = 0x27d4eb2f165667c5;

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

template <typename Word>
uint64_t word_at(const char* bytes) {
  Word word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t mixed_lane(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * xx_prime2, 31) * xx_prime1;
}

}  // namespace

uint64_t xxhash64(std::string_view bytes, uint64_t seed) {
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = seed + xx_prime5;
  if (left >= 32) {
    std::array<uint64_t, 4> lane{seed + xx_prime1 + xx_prime2, seed + xx_prime2, seed, seed - xx_prime1};
    for (; left >= 32; at += 32, left -= 32) {
      for (size_t i = 0; i < 4; ++i) lane[i] = mixed_lane(lane[i], word_at<uint64_t>(at + 8 * i));
    }
    hash = std::rotl(lane[0], 1) + std::rotl(lane[1], 7) + std::rotl(lane[2], 12) + std::rotl(lane[3], 18);
    for (const uint64_t one : lane) hash = (hash ^ mixed_lane(0, one)) * xx_prime1 + xx_prime4;
  }
  hash += bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    hash = std::rotl(hash ^ mixed_lane(0, word_at<uint64_t>(at)), 27) * xx_prime1 + xx_prime4;
  }
  for (; left >= 4; at += 4, left -= 4) {
    hash = std::rotl(hash ^ word_at<uint32_t>(at) * xx_prime1, 23) * xx_prime2 + xx_prime3;
  }
  for (; left > 0; ++at, --left) hash = std::rotl(hash ^ word_at<uint8_t>(at) * xx_prime5, 11) * xx_prime1;
  hash = (hash ^ hash >> 33) * xx_prime2;
  hash = (hash ^ hash >> 29) * xx_prime3;
  return hash ^ hash >> 32;
}

}  // namespace bilevel
