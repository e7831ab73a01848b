#pragma once
// A file of genotypes, one a line, as `count` and `query` read it.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"

namespace bilevel {

// Lines that are empty or begin with # are passed over. Throws std::runtime_error that names the file, and
// the line where `take` refuses a genotype by std::invalid_argument; also where there is none.
template <typename Take>
void for_each_genotype(const std::string& file, const std::string& expected, const Take& take) {
  constexpr int64_t largest = int64_t{1} << 30;
  LineReader lines(file, largest);
  std::string_view line;
  bool found = false;
  while (lines.next(line)) {
    line = trimmed(line);
    if (line.empty() || line.starts_with('#')) continue;
    found = true;
    try {
      take(line);
    } catch (const std::invalid_argument& error) {
      line_error(file, lines.number(), expected, error.what(), "lines that begin with # are ignored");
    }
  }
  if (!found) {
    throw std::runtime_error(file + ": it has no genotype, only empty lines and comments");
  }
}

}  // namespace bilevel
