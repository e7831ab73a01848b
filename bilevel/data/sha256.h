#pragma once
// SHA-256 (FIPS 180-4), to tell whether a fetched file is the file.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace bilevel {

class Sha256 {
 public:
  void add(std::string_view bytes);
  std::string hex();  // of all that was added; ends the use of this object

 private:
  void mix(const unsigned char* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> buffer_{};
  size_t buffered_ = 0;
  uint64_t length_ = 0;
};

std::string sha256_of_file(const std::string& path);  // its bytes as stored; throws std::runtime_error

}  // namespace bilevel
