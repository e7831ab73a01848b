#include "bilevel/data/newsgroup_text.h"

#include <algorithm>
#include <array>

namespace bilevel {
namespace {

// Python's str.isspace() and \w among the first 256 characters of Unicode.
constexpr bool is_space(unsigned char c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0;
}
constexpr bool is_word(unsigned char c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
  if (c >= 0xc0) return c != 0xd7 && c != 0xf7;  // the letters but for the signs of times and division
  // The ordinals, micro, superscript digits and fractions.
  return c == 0xaa || c == 0xb5 || c == 0xba || c == 0xb2 || c == 0xb3 || c == 0xb9 ||
         (c >= 0xbc && c <= 0xbe);
}
constexpr unsigned char lower(unsigned char c) {
  const bool upper = (c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7);
  return upper ? static_cast<unsigned char>(c + 32) : c;
}

// '\0' for what no token holds, else the lower-cased character.
constexpr std::array<char, 256> token_table = [] {
  std::array<char, 256> table{};
  for (size_t c = 0; c < 256; ++c) {
    const auto code = static_cast<unsigned char>(c);
    if (is_word(code)) table[c] = static_cast<char>(lower(code));
  }
  return table;
}();

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_space(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_space(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

bool quotes(std::string_view line) {
  for (const std::string_view start : {"In article", "Quoted from", "|", ">"}) {
    if (line.starts_with(start)) return true;
  }
  for (const std::string_view phrase : {"writes in", "writes:", "wrote:", "says:", "said:"}) {
    if (line.find(phrase) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::string_view without_header(std::string_view text) {
  const size_t end = text.find("\n\n");
  return end == std::string_view::npos ? std::string_view{} : text.substr(end + 2);
}

std::string_view without_footer(std::string_view text) {
  const std::string_view body = stripped(text);
  size_t end = body.size();
  for (;;) {
    const size_t newline = end == 0 ? std::string_view::npos : body.rfind('\n', end - 1);
    if (newline == std::string_view::npos) return text;  // the first line does not end a text
    const std::string_view line = stripped(body.substr(newline + 1, end - newline - 1));
    if (line.find_first_not_of('-') == std::string_view::npos) return body.substr(0, newline);
    end = newline;
  }
}

std::string without_quotes(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  for (;;) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!quotes(line)) kept.append(line) += '\n';
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  if (!kept.empty()) kept.pop_back();
  return kept;
}

void for_each_token(std::string_view text, const std::function<void(const std::string&)>& use) {
  std::string token;
  for (const char byte : text) {
    const char code = token_table[static_cast<unsigned char>(byte)];
    if (code != '\0') {
      token += code;
      continue;
    }
    if (token.size() > 1) use(token);
    token.clear();
  }
  if (token.size() > 1) use(token);
}

std::string latin1_to_utf8(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x80) {
      result += byte;
    } else {
      result += static_cast<char>(0xc0 | code >> 6);
      result += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return result;
}

}  // namespace bilevel
