#pragma once
// Lines of a text file, plain or compressed, and numbers within them: what the CSV and svmlight readers
// share.

#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "bilevel/data/byte_source.h"

namespace bilevel {

class LineReader {
 public:
  LineReader(const std::string& path, int64_t limit);  // in bytes of content
  // The next line without its end (\n or \r\n), valid until the next call; false at the file's end.
  bool next(std::string_view& line);
  int64_t number() const { return number_; }  // of the line last returned, from 1
  const std::string& path() const { return source_->path(); }
  int64_t most_bytes() const { return source_->most_bytes(); }  // a bound on the whole text, known at once

 private:
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t begin_ = 0;     // of the next line
  size_t searched_ = 0;  // no line ends before this
  size_t end_ = 0;       // of what was read
  bool ended_ = false;
  int64_t number_ = 0;
};

inline std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// The whole text as one number in any locale; false for anything else. Infinities and NaN are numbers here.
template <typename T>
bool parse_number(std::string_view text, T& value) {
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace bilevel
