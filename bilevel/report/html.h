#pragma once
// The words of which a page is made. What comes from a run's files is text and nothing else: it goes through
// escaped() before it is part of a page, and pictures go in as data: addresses, in which no script runs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bilevel::html {

std::string escaped(std::string_view text);                               // for content and attributes
std::string data_address(std::string_view type, std::string_view bytes);  // data:TYPE;base64,...
std::string image(std::string_view type, std::string_view bytes, std::string_view description);

// A table whose first column names its rows. The cells are HTML already; it scrolls by itself where the
// window is narrow.
struct Table {
  std::vector<std::string> head;               // escaped by the caller; empty = none
  std::vector<std::vector<std::string>> rows;  // the first of each is a heading
  std::string caption = {};
  bool numbers = false;  // the columns after the first are numbers, set to the right
};
std::string table(const Table& table);
// A box that says why there is no picture, or what went wrong.
std::string note(std::string_view text);
std::string details(std::string_view summary, const std::string& content);

// Digits that a reader can use: 12,345, 0.1838, 3.2e-05.
std::string number_text(double value);
std::string percent_text(double value);  // 91.71 %
std::string time_text(double seconds);   // 6.4 s, 12 min 5 s, 3 h 20 min

}  // namespace bilevel::html
