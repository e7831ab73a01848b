#include "bilevel/data/csv.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/data/csv_columns.h"
#include "bilevel/data/csv_diagnosis.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {
namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";  // some programs begin UTF-8 by one
constexpr double largest_csv_label = 9007199254740992.0;      // 2^53: whole numbers are exact up to here

class CsvReader {
 public:
  CsvReader(const std::string& path, const CsvOptions& options)
      : lines_(path, options.largest_bytes), options_(options) {}

  CsvTable read() {
    std::string_view line;
    bool first = true;
    while (lines_.next(line)) {
      if (first && line.starts_with(byte_order_mark)) line.remove_prefix(byte_order_mark.size());
      if (trimmed(line).empty()) continue;
      line_ = line;
      split(line);
      if (std::exchange(first, false)) {
        width_ = fields_.size();
        if (width_ == 1) fail_if_separated_otherwise();
        const bool header = is_header();
        label_ = find_column(options_.label_column, options_.like.label, "label", header);
        group_ = find_column(options_.group_column, options_.like.group, "group", header);
        if (label_ && label_ == group_) {
          fail("two columns, one of labels and one of groups", fmt::format("column {} for both", *label_),
               "choose another label column or another group column");
        }
        for (size_t i = 0; i < width_; ++i) {
          if (i != label_ && i != group_) places_.push_back(places_.size());
        }
        if (header) {
          take_header();
          continue;
        }
      }
      add_row();
    }
    if (rows_ == 0) {
      line_error(lines_.path(), 0, "rows of numbers", first ? "an empty file" : "only a header",
                 "check the path, or how it was written");
    }
    return finish();
  }

 private:
  [[noreturn]] void fail(std::string_view expected, std::string_view found, std::string_view hint) const {
    line_error(lines_.path(), lines_.number(), expected, found, hint);
  }

  // Fields are views into the line, or into unquoted_ where a quoted field holds doubled quotes.
  void split(std::string_view line) {
    fields_.clear();
    unquoted_.clear();
    unquoted_.reserve(static_cast<size_t>(std::count(line.begin(), line.end(), '"')));
    for (;;) {
      size_t end = 0;
      const std::string_view rest = line.substr(std::min(line.find_first_not_of(blanks()), line.size()));
      if (rest.starts_with('"')) {
        line = rest;
        end = add_quoted(line);
      } else {
        end = std::min(line.find(options_.separator), line.size());
        fields_.push_back(trimmed(line.substr(0, end)));
      }
      if (end >= line.size()) return;
      line.remove_prefix(end + 1);
    }
  }
  size_t add_quoted(std::string_view line) {
    std::string& field = unquoted_.emplace_back();
    size_t at = 1;
    for (;; ++at) {
      if (at >= line.size()) {
        fail("a closing quote on the same line", printable(line), "quoted line breaks are not supported");
      }
      if (line[at] == '"') {
        if (at + 1 >= line.size() || line[at + 1] != '"') break;
        ++at;
      }
      field += line[at];
    }
    fields_.emplace_back(field);
    at = std::min(line.find_first_not_of(blanks(), at + 1), line.size());
    if (at < line.size() && line[at] != options_.separator) {
      const std::string hint = way_out_of_separator(line_, options_.separator);
      fail(fmt::format("{} after a quoted field", printable({&options_.separator, 1})),
           printable(line.substr(at)), hint.empty() ? "is the separator another?" : hint);
    }
    return at;
  }

  bool is_header() const {
    if (options_.header != CsvHeader::automatic) return options_.header == CsvHeader::present;
    double ignored = 0;
    const auto numbers =
        static_cast<size_t>(std::count_if(fields_.begin(), fields_.end(), [&](std::string_view field) {
          return parse_number(field, ignored);
        }));
    if (numbers != 0 && numbers != width_) fail_in_first_row();
    return numbers == 0;
  }

  // A row of names and numbers: an example with text in it, or a header in which some names are numbers.
  [[noreturn]] void fail_in_first_row() const {
    double ignored = 0;
    size_t at = 0;
    while (parse_number(fields_[at], ignored)) ++at;
    fail_if_separated_otherwise();
    if (is_missing(fields_[at])) {
      fail(fmt::format("a finite number in column {}", at), printable(fields_[at]),
           way_out_of_field(fields_[at], CsvColumn::feature));
    }
    const auto is_number = [&](std::string_view field) { return parse_number(field, ignored); };
    const bool alone =
        std::count_if(fields_.begin(), fields_.end(), is_number) + 1 == static_cast<std::ptrdiff_t>(width_);
    const std::string& label = options_.label_column;
    size_t position = width_;
    if (label == "first") position = 0;
    if (label == "last") position = width_ - 1;
    (void)parse_number(std::string_view(label), position);
    if (alone && at == position) {
      fail(fmt::format("a whole number as label in column {}", at), printable(fields_[at]),
           way_out_of_field(fields_[at], CsvColumn::label));
    }
    fail("a first row of names or a first row of numbers",
         fmt::format("a mixture, with {} in column {}", printable(fields_[at]), at),
         "if it is a header, give every column a name that is no number; if it is an example, leave the "
         "column "
         "out (an id says nothing about a class) or write numbers in place of text");
  }
  void fail_if_separated_otherwise() const {
    const std::string hint = way_out_of_separator(line_, options_.separator);
    if (hint.empty()) return;
    fail(fmt::format("fields separated by {}", printable({&options_.separator, 1})), printable(line_), hint);
  }

  // The names of the columns, and where each belongs.
  void take_header() {
    for (size_t i = 0; i < width_; ++i) {
      if (fields_[i].empty()) {
        fail(fmt::format("a name for column {}", i), printable(fields_[i]),
             "leave out a column of row numbers (pandas: to_csv(..., index=False)), or name it");
      }
      header_.emplace_back(fields_[i]);
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < width_; ++i) {
      if (i != label_ && i != group_) names.push_back(header_[i]);
    }
    if (label_) table_.label_name = header_[*label_];
    if (group_) table_.group_name = header_[*group_];
    const std::vector<std::string>& wanted = options_.like.features;
    if (!wanted.empty()) {
      places_ = match_columns(lines_.path(), lines_.number(), names, options_.like.table, wanted);
    }
    table_.names = wanted.empty() ? std::move(names) : wanted;
  }

  std::optional<size_t> find_column(const std::string& wanted, const std::string& like, const char* what,
                                    bool header) const {
    if (wanted.empty()) return std::nullopt;
    if (header) {
      for (const std::string& name : {like, wanted}) {
        const auto named = std::find(fields_.begin(), fields_.end(), name);
        if (!name.empty() && named != fields_.end()) return static_cast<size_t>(named - fields_.begin());
      }
    }
    if (wanted == "first") return 0;
    if (wanted == "last") return width_ - 1;
    size_t position = 0;
    if (parse_number(std::string_view(wanted), position) && position < width_) return position;
    fail(fmt::format("a {} column {}", what, printable(wanted)),
         fmt::format("{} columns{}", width_, header ? " of other names" : " without names"),
         "name a column of the header, a position from 0, first or last");
  }

  std::string column_text(size_t i) const {
    return header_.empty() ? fmt::format("column {}", i)
                           : fmt::format("column {} ({})", i, printable(header_[i]));
  }

  void add_row() {
    if (fields_.size() != width_) {
      const std::string hint = way_out_of_separator(line_, options_.separator);
      fail(fmt::format("{} fields as in the first row", width_), fmt::format("{}", fields_.size()),
           hint.empty() ? "is the line cut short, or the separator another?" : hint);
    }
    const size_t row = rows_++ % rows_a_block();
    if (row == 0) {
      blocks_.push_back(at::empty({static_cast<int64_t>(rows_a_block()), values_a_row()},
                                  at::TensorOptions().dtype(options_.dtype).device(at::kCPU)));
    }
    const int64_t begin = static_cast<int64_t>(row) * values_a_row();
    auto place = places_.begin();
    for (size_t i = 0; i < width_; ++i) {
      const CsvColumn column = i == label_   ? CsvColumn::label
                               : i == group_ ? CsvColumn::group
                                             : CsvColumn::feature;
      double value = 0;
      if (!parse_number(fields_[i], value) || !std::isfinite(value)) {
        fail_if_separated_otherwise();
        fail(column == CsvColumn::feature
                 ? fmt::format("a finite number in {}", column_text(i))
                 : fmt::format("a whole number as {} in {}", column == CsvColumn::label ? "label" : "group",
                               column_text(i)),
             printable(fields_[i]), way_out_of_field(fields_[i], column));
      }
      if (column != CsvColumn::feature) {
        const bool label = column == CsvColumn::label;
        if (label && options_.labels_are_numbers) {
          targets_.push_back(value);
          continue;
        }
        if (value != std::floor(value) || std::abs(value) > largest_csv_label) {
          fail(fmt::format("a whole number as {} in {}", label ? "label" : "group", column_text(i)),
               printable(fields_[i]),
               label ? "number the classes, or choose another label column"
                     : "number the groups, or choose another group column");
        }
        (label ? labels_ : groups_).push_back(static_cast<int64_t>(value));
        continue;
      }
      const int64_t at = begin + static_cast<int64_t>(*place++);
      if (options_.dtype == at::kFloat) {
        const auto narrow = static_cast<float>(value);
        if (!std::isfinite(narrow))
          fail("a number that a float can hold", printable(fields_[i]), "read as double");
        blocks_.back().data_ptr<float>()[at] = narrow;
      } else {
        blocks_.back().data_ptr<double>()[at] = value;
      }
    }
  }

  CsvTable finish() {
    const auto rows = static_cast<int64_t>(rows_);
    const auto full = static_cast<int64_t>((blocks_.size() - 1) * rows_a_block());
    blocks_.back() = blocks_.back().narrow(0, 0, rows - full);
    table_.values = at::cat(blocks_);
    if (label_) {
      table_.labels = options_.labels_are_numbers ? at::tensor(targets_, at::kDouble)
                                                  : at::tensor(labels_, at::TensorOptions().dtype(at::kLong));
    }
    if (group_) table_.groups = at::tensor(groups_, at::TensorOptions().dtype(at::kLong));
    return std::move(table_);
  }

  // What may surround a field: a separator may not.
  const char* blanks() const {
    return options_.separator == ' ' ? "\t" : options_.separator == '\t' ? " " : " \t";
  }
  int64_t values_a_row() const { return static_cast<int64_t>(width_) - (label_ ? 1 : 0) - (group_ ? 1 : 0); }
  // About 8 MiB a block, as joining blocks at the end takes less memory than growing one array, but no more
  // rows than the file has room for: a field and what ends it take two bytes.
  size_t rows_a_block() const {
    const size_t room = static_cast<size_t>(lines_.most_bytes()) / 2;
    return std::min((size_t{1} << 20) / width_, room / width_) + 1;
  }

  LineReader lines_;
  CsvOptions options_;
  std::string_view line_;  // the one that fields_ are of
  std::vector<std::string_view> fields_;
  std::vector<std::string> unquoted_;
  size_t width_ = 0;
  size_t rows_ = 0;
  std::optional<size_t> label_, group_;
  std::vector<std::string> header_;  // of all columns; empty without one
  std::vector<size_t> places_;       // among the values, of the columns that are features
  std::vector<Tensor> blocks_;
  std::vector<int64_t> labels_, groups_;  // empty where there is no such column
  std::vector<double> targets_;           // labels that are numbers
  CsvTable table_;
};

}  // namespace

void CsvOptions::validate() const {
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw std::invalid_argument(fmt::format("csv: dtype = {}: must be float or double", at::toString(dtype)));
  }
  if (separator == '"' || separator == '\n' || separator == '.') {
    throw std::invalid_argument("csv: separator must not be a quote, a line's end or a point");
  }
  require_at_least("csv: largest_bytes", largest_bytes, 1);
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) {
  options.validate();
  return CsvReader(path, options).read();
}

}  // namespace bilevel
