#pragma once
// A value as one word of a POSIX shell's command line: lines that are printed to be typed must survive a
// folder's name with a blank or an apostrophe.

#include <string>

namespace bilevel {

inline std::string shell_word(const std::string& value) {
  const bool plain =
      value.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
      std::string::npos;
  if (plain && !value.empty()) return value;
  std::string word = "'";
  for (const char c : value) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace bilevel
