#pragma once
// Rows of a benchmark's CSV, plain or compressed: columns by name, mistakes by line.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/data/line_reader.h"

namespace bilevel::nas {

class TableReader {
 public:
  // Reads the header; throws std::runtime_error unless all of `columns` are there, each once. Other columns
  // are passed over.
  TableReader(const std::string& path, const std::vector<std::string>& columns);

  bool next();  // to the next row that is not empty; false at the end
  int64_t line() const { return lines_.number(); }
  // Of the current row, by the position in `columns`; valid until next().
  std::string_view text(size_t column) const { return fields_[places_[column]]; }
  double number(size_t column, double smallest, double largest) const;  // finite and within the bounds
  [[noreturn]] void fail(std::string_view expected, std::string_view found, std::string_view hint) const;

 private:
  LineReader lines_;
  std::vector<std::string> columns_;
  std::vector<size_t> places_;  // of `columns` in a row
  size_t width_ = 0;
  std::vector<std::string_view> fields_;
};

// The names in a file's first row.
std::vector<std::string> table_header(const std::string& path);

}  // namespace bilevel::nas
