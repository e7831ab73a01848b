#pragma once
// A line of a table taken apart into its fields.

#include <string>
#include <string_view>
#include <vector>

namespace bilevel {

class CsvLine {
 public:
  explicit CsvLine(char separator) : separator_(separator) {}

  // Fields may be quoted, with doubled quotes inside, and surrounded by blanks. They are views into the line
  // or into this object, until the next call. `wrong` is called with what was expected, what was found and a
  // way out, and must throw.
  template <typename Wrong>
  const std::vector<std::string_view>& split(std::string_view line, Wrong wrong);

 private:
  struct Fault {
    std::string expected, found, hint;
  };
  bool split(std::string_view line, Fault& fault);
  bool add_quoted(std::string_view line, size_t& end, Fault& fault);
  // What may surround a field: a separator may not.
  const char* blanks() const { return separator_ == ' ' ? "\t" : separator_ == '\t' ? " " : " \t"; }

  char separator_;
  std::string_view line_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> unquoted_;
};

template <typename Wrong>
const std::vector<std::string_view>& CsvLine::split(std::string_view line, Wrong wrong) {
  Fault fault;
  if (!split(line, fault)) wrong(fault.expected, fault.found, fault.hint);
  return fields_;
}

// As a field of a table that others read: in quotes where it must be.
std::string csv_quoted(const std::string& text);

}  // namespace bilevel
