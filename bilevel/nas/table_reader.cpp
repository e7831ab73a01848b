#include "bilevel/nas/table_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bilevel/data/file_error.h"
#include "bilevel/data/npy_header.h"

namespace bilevel::nas {
namespace {

constexpr int64_t largest_table = int64_t{1} << 30;  // NAS-Bench-101 unpacks to 30 MB
constexpr size_t most_columns = 1000;

// No name and no number of these tables holds a comma, so quotes are only ever around a whole field.
std::string_view unquoted(std::string_view field) {
  field = trimmed(field);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
    field = field.substr(1, field.size() - 2);
  return field;
}

void split_row(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  for (;;) {
    const size_t end = std::min(line.find(','), line.size());
    fields.push_back(unquoted(line.substr(0, end)));
    if (end == line.size() || fields.size() > most_columns) return;
    line.remove_prefix(end + 1);
  }
}

}  // namespace

TableReader::TableReader(const std::string& path, const std::vector<std::string>& columns)
    : lines_(path, largest_table), columns_(columns) {
  std::string_view line;
  if (!lines_.next(line)) {
    line_error(path, 0, fmt::format("a header with {}", fmt::join(columns, ",")), "an empty file",
               "check the path, or how it was written");
  }
  split_row(line, fields_);
  width_ = fields_.size();
  for (const std::string& column : columns) {
    const auto count = std::count(fields_.begin(), fields_.end(), column);
    if (count != 1) {
      fail(fmt::format("a column '{}' in the header", column), count == 0 ? "none" : fmt::format("{}", count),
           fmt::format("the columns are {}", fmt::join(columns, ",")));
    }
    places_.push_back(
        static_cast<size_t>(std::find(fields_.begin(), fields_.end(), column) - fields_.begin()));
  }
}

bool TableReader::next() {
  std::string_view line;
  do {
    if (!lines_.next(line)) return false;
  } while (trimmed(line).empty());
  split_row(line, fields_);
  if (fields_.size() != width_) {
    fail(fmt::format("{} fields as in the header", width_), fmt::format("{}", fields_.size()),
         "is the file cut short?");
  }
  return true;
}

double TableReader::number(size_t column, double smallest, double largest) const {
  double value = 0;
  if (!parse_number(text(column), value) || !(value >= smallest && value <= largest)) {
    fail(fmt::format("a number from {} to {} in column {}", smallest, largest, columns_[column]),
         printable(text(column)), "the file is damaged or of another format");
  }
  return value;
}

void TableReader::fail(std::string_view expected, std::string_view found, std::string_view hint) const {
  line_error(lines_.path(), lines_.number(), expected, found, hint);
}

std::vector<std::string> table_header(const std::string& path) {
  LineReader lines(path, largest_table);
  std::string_view line;
  std::vector<std::string_view> fields;
  if (lines.next(line)) split_row(line, fields);
  return {fields.begin(), fields.end()};
}

}  // namespace bilevel::nas
