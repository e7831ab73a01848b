#pragma once
// A column of text: each different text once, and which one every row has.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bilevel {

class CsvText {
 public:
  static constexpr int64_t missing = -1;

  void add(std::string_view text, int64_t line);
  void add_missing() { codes_.push_back(missing); }

  const std::vector<int64_t>& codes() const { return codes_; }      // a row each
  const std::vector<std::string>& texts() const { return texts_; }  // in the order of their first rows
  const std::vector<int64_t>& first_lines() const { return lines_; }
  void clear();

 private:
  std::unordered_map<std::string, int64_t> places_;
  std::vector<std::string> texts_;
  std::vector<int64_t> lines_, codes_;
  std::string key_;
};

// Text that is no UTF-8 is Latin-1, as older programs write it.
std::string as_utf8(std::string_view text);

// Codes as positions in `sorted`; one that is not in it is `missing`.
std::vector<int64_t> positions_in(const CsvText& column, const std::vector<std::string>& sorted);

}  // namespace bilevel
