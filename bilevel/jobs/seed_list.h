#pragma once
// Several seeds as one word: 0-2 (three seeds), 0,3,7 or 2-2 (one seed).

#include <cstdint>
#include <string>
#include <vector>

namespace bilevel {

struct SeedList {
  std::vector<uint64_t> seeds;
};
std::string word_of(const SeedList& list);
// A single number is refused but for 0: it may mean a seed, or how many.
void read_word(const std::string& word, SeedList& list);

}  // namespace bilevel
