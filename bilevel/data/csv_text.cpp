#include "bilevel/data/csv_text.h"

#include <algorithm>

namespace bilevel {

void CsvText::add(std::string_view text, int64_t line) {
  key_ = as_utf8(text);
  const auto [place, is_new] = places_.try_emplace(key_, static_cast<int64_t>(texts_.size()));
  if (is_new) {
    texts_.push_back(key_);
    lines_.push_back(line);
  }
  codes_.push_back(place->second);
}

void CsvText::clear() {
  places_.clear();
  texts_.clear();
  lines_.clear();
  codes_.clear();
}

namespace {

// The bytes of a character of UTF-8 that begins here; 0 = there is none.
size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 && first < 0xf5   ? 4
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xc2 && first < 0xe0 ? 2
                                                        : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t code = first & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0U) != 0x80U) return 0;
    code = code << 6U | (next & 0x3fU);
  }
  const bool is_too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return is_too_long || is_surrogate || code > 0x10ffff ? 0 : length;
}

}  // namespace

std::string as_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  if (at == text.size()) return std::string(text);
  std::string result;
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (code < 0x80) {
      result += letter;
    } else {
      result += static_cast<char>(0xc0U | code >> 6U);
      result += static_cast<char>(0x80U | (code & 0x3fU));
    }
  }
  return result;
}

std::vector<int64_t> positions_in(const CsvText& column, const std::vector<std::string>& sorted) {
  std::vector<int64_t> place;
  for (const std::string& text : column.texts()) {
    const auto found = std::lower_bound(sorted.begin(), sorted.end(), text);
    place.push_back(found != sorted.end() && *found == text ? found - sorted.begin() : CsvText::missing);
  }
  std::vector<int64_t> result;
  result.reserve(column.codes().size());
  for (const int64_t code : column.codes()) {
    result.push_back(code < 0 ? CsvText::missing : place[static_cast<size_t>(code)]);
  }
  return result;
}

}  // namespace bilevel
