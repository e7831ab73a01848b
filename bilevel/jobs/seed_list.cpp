#include "bilevel/jobs/seed_list.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace bilevel {
namespace {

constexpr uint64_t longest_range = 1000;

[[noreturn]] void refuse_list() {
  throw std::invalid_argument(
      fmt::format("must be a list such as 0-2 or 0,3,7, with at most {} seeds in a range", longest_range));
}

uint64_t seed_of(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) refuse_list();
  return value;
}

}  // namespace

std::string word_of(const SeedList& list) {
  const std::vector<uint64_t>& seeds = list.seeds;
  std::string word;
  for (size_t first = 0; first < seeds.size();) {
    size_t last = first;
    while (last + 1 < seeds.size() && seeds[last + 1] == seeds[last] + 1 && last + 1 - first < longest_range)
      ++last;
    const bool alone = seeds.size() == 1 && seeds[0] > 0;
    if (!word.empty()) word += ',';
    word += last > first || alone ? fmt::format("{}-{}", seeds[first], seeds[last])
                                  : fmt::format("{}", seeds[first]);
    first = last + 1;
  }
  return word;
}

void read_word(const std::string& word, SeedList& list) {
  const bool one_number = word.find_first_of(",-") == std::string::npos;
  // "0" can only be a seed's number.
  if (const uint64_t value = one_number ? seed_of(word) : 0; value > 0) {
    throw std::invalid_argument(fmt::format("write {0}-{0} for seed number {0}, or 0-{1} for {0} {2}", value,
                                            value - 1, value == 1 ? "seed" : "seeds"));
  }
  std::vector<uint64_t> seeds;
  std::string_view rest = word;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t dash = item.find('-');
    const uint64_t first = seed_of(item.substr(0, dash));
    const uint64_t last = dash == std::string_view::npos ? first : seed_of(item.substr(dash + 1));
    if (last < first || last - first >= longest_range) refuse_list();
    for (uint64_t offset = 0; offset <= last - first; ++offset) seeds.push_back(first + offset);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  list.seeds = seeds;
}

}  // namespace bilevel
