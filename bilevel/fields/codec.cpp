#include "bilevel/fields/codec.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "bilevel/fields/range.h"

namespace bilevel {

std::string word_of(bool value) { return value ? "true" : "false"; }
std::string word_of(int64_t value) { return fmt::format("{}", value); }
std::string word_of(uint64_t value) { return fmt::format("{}", value); }
std::string word_of(double value) { return fmt::format("{}", value); }

void read_word(const std::string& word, bool& value) {
  if (word != "true" && word != "false") throw std::invalid_argument("must be true or false");
  value = word == "true";
}

void read_word(const std::string& word, int64_t& value) {
  require_whole(word, {.least = -9.2e18, .most = 9.2e18});
  value = std::strtoll(word.c_str(), nullptr, 10);
}

void read_word(const std::string& word, int& value) {
  require_whole(word, {.least = std::numeric_limits<int>::min(), .most = std::numeric_limits<int>::max()});
  value = static_cast<int>(std::strtol(word.c_str(), nullptr, 10));
}

void read_word(const std::string& word, uint64_t& value) {
  require_seed(word);
  value = std::strtoull(word.c_str(), nullptr, 10);
}

void read_word(const std::string& word, double& value) {
  require_number(word,
                 {.least = -std::numeric_limits<double>::max(), .most = std::numeric_limits<double>::max()});
  value = std::strtod(word.c_str(), nullptr);
}

}  // namespace bilevel
