#pragma once
// Bytes with the SHA-256 behind them that a checkpoint ends with, which chance would not find.

#include <string>
#include <string_view>

#include "bilevel/data/sha256.h"

namespace bilevel::fuzz {

inline std::string sealed(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return std::string(bytes) + hash.hex();
}

}  // namespace bilevel::fuzz
