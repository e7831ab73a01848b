#pragma once
// Seeds as a list, "0-2" or "0,3,7" or both. A single number is refused: `--seeds 2` could mean seed number 2
// or two seeds, and either reading would run without a word.

#include <cstdint>
#include <string>
#include <vector>

namespace bilevel::cli {

// Throws std::invalid_argument with the ways to write what may have been meant.
std::vector<uint64_t> parse_seeds(const std::string& text);

std::string seeds_text(const std::vector<uint64_t>& seeds);  // "0, 1, 2"

}  // namespace bilevel::cli
