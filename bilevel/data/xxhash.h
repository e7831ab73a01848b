#pragma once
// XXH64 (Yann Collet's xxHash, 64 bits): tells apart data that differ by accident, at the speed of memory.
// Not against forgery, for which there is sha256.h at a twentieth of the speed.

#include <cstdint>
#include <string_view>

namespace bilevel {

uint64_t xxhash64(std::string_view bytes, uint64_t seed = 0);

}  // namespace bilevel
