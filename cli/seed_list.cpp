#include "cli/seed_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <stdexcept>
#include <string_view>

namespace bilevel::cli {

std::vector<uint64_t> parse_seeds(const std::string& text) {
  const auto fail = [&text] {
    throw std::invalid_argument(
        fmt::format("--seeds {}: must be a list such as 0-2 or 0,3,7, of at most 1000 in a range", text));
  };
  const auto parse = [&](std::string_view part) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (part.empty() || error != std::errc() || end != part.data() + part.size()) fail();
    return value;
  };
  const bool one_number = text.find_first_of(",-") == std::string::npos;
  // "0" can only be a seed's number.
  if (const uint64_t value = one_number ? parse(text) : 0; value > 0) {
    throw std::invalid_argument(
        fmt::format("--seeds {0}: write {0}-{0} for seed number {0}, or 0-{1} for {0} {2}", text, value - 1,
                    value == 1 ? "seed" : "seeds"));
  }
  std::vector<uint64_t> seeds;
  std::string_view rest = text;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const size_t dash = item.find('-');
    const uint64_t first = parse(item.substr(0, dash));
    const uint64_t last = dash == std::string_view::npos ? first : parse(item.substr(dash + 1));
    if (last < first || last - first > 999) fail();
    for (uint64_t offset = 0; offset <= last - first; ++offset) seeds.push_back(first + offset);
    if (comma == std::string_view::npos) return seeds;
    rest.remove_prefix(comma + 1);
  }
}

std::string seeds_text(const std::vector<uint64_t>& seeds) {
  return fmt::format("{}", fmt::join(seeds, ", "));
}

}  // namespace bilevel::cli
