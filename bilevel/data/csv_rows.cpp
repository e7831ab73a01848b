// Rows of a table, taken apart and collected, in as many passes as its columns need.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "bilevel/data/csv_columns.h"
#include "bilevel/data/csv_diagnosis.h"
#include "bilevel/data/csv_labels.h"
#include "bilevel/data/csv_line.h"
#include "bilevel/data/csv_reader.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {

namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // some programs begin UTF-8 by one
constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void CsvReader::read_pass() {
  lines_ = std::make_unique<LineReader>(path_, options_.largest_bytes);
  CsvLine splitter(dialect_.separator);
  blocks_.clear();
  dropped_rows_.clear();
  rows_ = 0;
  missing_ = missing_labels_ = {};
  std::string_view line;
  bool first = true;
  while (lines_->next(line)) {
    if (first && line.starts_with(byte_order_mark)) line.remove_prefix(byte_order_mark.size());
    if (trimmed(line).empty()) continue;
    line_ = line;
    fields_ = &splitter.split(line, [this](const auto& expected, const auto& found, const auto& hint) {
      fail(expected, found, hint);
    });
    if (std::exchange(first, false)) {
      if (columns_.empty()) begin_columns();
      if (has_header_) continue;
    }
    add_row();
  }
  if (rows_ == 0) {
    line_error(path_, 0, "rows of numbers", first ? "an empty file" : "only a header",
               "check the path, or how it was written");
  }
}

std::string CsvReader::column_text(size_t i) const {
  return has_header_ ? fmt::format("column {} ({})", i, printable(columns_[i].name))
                     : fmt::format("column {}", i);
}

bool CsvReader::parse(std::string_view field, double& value) {
  if (dialect_.decimal == ',') {
    if (field.find(',') == std::string_view::npos) {
      return field.find('.') == std::string_view::npos && parse_number(field, value);
    }
    if (field.find('.') != std::string_view::npos) return false;
    decimal_.assign(field);
    decimal_[decimal_.find(',')] = '.';
    return parse_number(std::string_view(decimal_), value);
  }
  if (!parse_number(field, value)) return false;
  if (!has_points_) has_points_ = field.find('.') != std::string_view::npos;
  return true;
}

bool CsvReader::is_broken_number(std::string_view field) {
  return field.find_first_not_of("+-.0123456789eE") == std::string_view::npos &&
         field.find_first_of("0123456789") != std::string_view::npos;
}

void CsvReader::note_missing(CsvPlace& place, size_t column, std::string_view field) const {
  if (place.count++ > 0) return;
  place.line = lines_->number();
  place.column = column;
  place.field = field;
}

void CsvReader::add_row() {
  const std::vector<std::string_view>& fields = *fields_;
  if (fields.size() != width_) {
    const std::string hint = way_out_of_separator(line_, dialect_.separator);
    fail(fmt::format("{} fields as in the first row", width_), fmt::format("{}", fields.size()),
         hint.empty() ? "is the line cut short, or the separator another?" : hint);
  }
  const size_t row = rows_++ % rows_a_block();
  if (row == 0 && numbers_a_row_ > 0) {
    blocks_.push_back(at::empty({static_cast<int64_t>(rows_a_block()), static_cast<int64_t>(numbers_a_row_)},
                                at::TensorOptions().dtype(options_.dtype).device(at::kCPU)));
  }
  bool lacks_value = false;
  for (size_t i = 0; i < width_; ++i) {
    CsvFileColumn& column = columns_[i];
    if (column.role == Role::passed_over) continue;
    const std::string_view field = fields[i];
    if (column.role != Role::feature) {
      if (!is_missing_text(field)) {
        column.text.add(field, lines_->number());
        continue;
      }
      column.text.add_missing();
      if (column.role == Role::label && options_.may_lack_label) continue;
      note_missing(missing_labels_, i, field);
      lacks_value = true;
      continue;
    }
    lacks_value = (column.is_text ? add_text(i, field) : add_number(i, field, row)) || lacks_value;
  }
  if (lacks_value) dropped_rows_.push_back(static_cast<int64_t>(rows_) - 1);
}

bool CsvReader::add_text(size_t i, std::string_view field) {
  if (!is_missing_text(field)) {
    columns_[i].text.add(field, lines_->number());
    return false;
  }
  columns_[i].text.add_missing();
  note_missing(missing_, i, field);
  return true;
}

bool CsvReader::add_number(size_t i, std::string_view field, size_t row) {
  CsvFileColumn& column = columns_[i];
  double value = 0;
  bool is_lacking = false;
  if (!parse(field, value) || !std::isfinite(value)) {
    value = no_value;
    is_lacking = is_missing(field);
    if (is_lacking) {
      note_missing(missing_, i, field);
    } else if (options_.like != nullptr && is_truth(field)) {
      value = in_small_letters(field) == "true" ? 1 : 0;
      ++column.truths;
    } else {
      take_text(i, field);
    }
  } else {
    ++column.numbers;
  }
  if (column.truths > 0 && column.numbers > 0) {
    fail(fmt::format("only numbers, or only True and False, in {}", column_text(i)), printable(field),
         "write the whole column the same way");
  }
  const size_t at = row * numbers_a_row_ + column.at;
  if (options_.dtype == at::kFloat) {
    const auto narrow = static_cast<float>(value);
    if (std::isinf(narrow)) fail("a number that a float can hold", printable(field), "read as double");
    blocks_.back().data_ptr<float>()[at] = narrow;
  } else {
    blocks_.back().data_ptr<double>()[at] = value;
  }
  return is_lacking;
}

void CsvReader::take_text(size_t i, std::string_view field) {
  CsvFileColumn& column = columns_[i];
  const bool may_be_comma = options_.decimal == '\0' && dialect_.decimal == '.' && is_comma_number(field);
  double value = 0;
  const bool is_wrong = parse_number(field, value) || is_broken_number(field) ||
                        (options_.decimal == '.' && is_comma_number(field));
  if (!may_be_comma && (is_wrong || options_.like != nullptr)) fail_in_number(i, field);
  if (may_be_comma) {
    if (comma_.count++ == 0) {
      comma_.line = lines_->number();
      comma_.field = field;
    }
    has_fractions_ = has_fractions_ || !looks_like_thousands(field);
  }
  if (column.texts++ == 0) {
    column.first_text_line = lines_->number();
    column.first_text = field;
  }
}

void CsvReader::fail_in_number(size_t i, std::string_view field) const {
  fail_if_separated_otherwise();
  const bool like = options_.like != nullptr;
  fail(fmt::format("a finite number in {}{}", column_text(i), like ? ", as in " + options_.like->file : ""),
       printable(field), way_out_of_field(field, CsvColumn::feature));
}

bool CsvReader::wants_another_pass() {
  if (dialect_.decimal == '.' && options_.decimal == '\0' && comma_.count > 0 && takes_comma()) {
    dialect_.decimal = ',';
    forget_pass();
    return true;
  }
  bool is_changed = false;
  for (size_t i = 0; i < width_; ++i) {
    CsvFileColumn& column = columns_[i];
    if (column.role != Role::feature || column.is_text || column.texts == 0) continue;
    // Some text among numbers is a slip, not a category.
    if (column.numbers >= column.texts) {
      line_error(path_, column.first_text_line, fmt::format("a finite number in {}", column_text(i)),
                 printable(column.first_text), way_out_of_field(column.first_text, CsvColumn::feature));
    }
    column.is_text = is_changed = true;
  }
  if (!is_changed) return false;
  forget_pass();
  place_numbers();
  return true;
}

void CsvReader::forget_pass() {
  for (CsvFileColumn& column : columns_) {
    column.numbers = column.texts = column.truths = 0;
    column.text.clear();
  }
}

bool CsvReader::takes_comma() const {
  if (has_points_) return false;
  if (has_fractions_ || dialect_.separator == ';') return true;
  line_error(path_, comma_.line, "decimals that can be told from thousands", printable(comma_.field),
             "give --decimal comma if it is a fraction; otherwise write the numbers without commas");
}

void CsvReader::require_values() {
  const auto expected = [&](const char* what, const CsvPlace& place, const char* hint) {
    line_error(path_, place.line, what,
               fmt::format("{} in {}, and {} missing values in all", printable(place.field),
                           column_text(place.column), place.count),
               hint);
  };
  const bool drops = options_.missing == "drop";
  if (missing_labels_.count > 0 && !drops) {
    expected("a label or group in every row", missing_labels_,
             "fill them in, or leave out their rows with --missing drop");
  }
  if (missing_.count > 0 && options_.missing == "error") {
    expected("a value in every field", missing_,
             "fill them in, take the mean of the training rows with --missing mean, or leave out their rows "
             "with --missing drop");
  }
  if (drops && dropped_rows_.size() == rows_) {
    line_error(path_, 0, "a row without missing values", fmt::format("none in {} rows", rows_),
               "give --missing mean, or leave out the column that has no values with --drop");
  }
}

}  // namespace bilevel
