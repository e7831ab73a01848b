// What the columns of a table are for: its header, labels, groups, and the places of another table's columns.

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

CsvReader::CsvReader(const std::string& path, const CsvOptions& options) : path_(path), options_(options) {
  const std::string beginning = beginning_of_table(path);
  dialect_.separator =
      options.separator != '\0' ? options.separator : separator_of_beginning(beginning, options.is_tsv);
  if (options.decimal != '\0') dialect_.decimal = options.decimal;
}

CsvTable CsvReader::read() {
  do {
    read_pass();
  } while (wants_another_pass());
  require_values();
  return finish();
}

void CsvReader::fail(std::string_view expected, std::string_view found, std::string_view hint) const {
  line_error(path_, lines_->number(), expected, found, hint);
}

void CsvReader::begin_columns() {
  const std::vector<std::string_view>& fields = *fields_;
  width_ = fields.size();
  if (width_ == 1) fail_if_separated_otherwise();
  const std::vector<std::string> first(fields.begin(), fields.end());
  has_header_ = is_header(first);
  columns_.resize(width_);
  if (has_header_) {
    for (size_t i = 0; i < width_; ++i) columns_[i].name = as_utf8(first[i]);
  }
  find_roles();
  if (options_.like != nullptr) {
    follow_schema();
  } else {
    require_names();
  }
  place_numbers();
}

bool CsvReader::is_number(std::string_view field) const {
  double ignored = 0;
  return parse_number(field, ignored) || is_comma_number(field);
}

bool CsvReader::is_header(const std::vector<std::string>& first) {
  if (options_.header != CsvHeader::automatic) return options_.header == CsvHeader::present;
  const auto numbers =
      std::count_if(first.begin(), first.end(), [&](const std::string& field) { return is_number(field); });
  if (std::cmp_equal(numbers, width_)) return false;
  if (numbers == 0) {
    // Names come once; a row of categories such as p,x,s,n,p is an example.
    const std::set<std::string> different(first.begin(), first.end());
    return different.size() == first.size() || !has_only_text(first);
  }
  int64_t counting = 0;
  for (size_t i = 0; i < width_; ++i) {
    if (first[i] == fmt::format("{}", counting)) ++counting;
  }
  if (counting == numbers && (counting > 1 || first[0].empty())) return true;
  const std::vector<std::string> second = second_row();
  for (size_t i = 0; i < width_; ++i) {
    if (is_number(first[i]) || is_missing(first[i])) continue;
    if (i < second.size() && is_number(second[i])) {
      fail_if_separated_otherwise();
      fail("a first row of names or a first row of an example",
           fmt::format("a mixture, with {} in column {} and a number below it", printable(first[i]), i),
           "if it is a header, give every column a name that is not a number, or give --header yes; if it is "
           "an example, give --header no");
    }
  }
  return false;
}

bool CsvReader::has_only_text(const std::vector<std::string>& first) {
  const std::vector<std::string> second = second_row();
  const auto has_number = [&](const std::vector<std::string>& row) {
    return std::any_of(row.begin(), row.end(), [&](const std::string& field) { return is_number(field); });
  };
  return second.size() == first.size() && !has_number(second);
}

std::vector<std::string> CsvReader::second_row() {
  LineReader lines(path_, options_.largest_bytes);
  CsvLine splitter(dialect_.separator);
  std::string_view line;
  bool first = true;
  while (lines.next(line)) {
    if (trimmed(line).empty()) continue;
    if (std::exchange(first, false)) continue;
    const auto& fields = splitter.split(line, [this](const auto& expected, const auto& found,
                                                     const auto& hint) { fail(expected, found, hint); });
    return {fields.begin(), fields.end()};
  }
  return {};
}

void CsvReader::fail_if_separated_otherwise() const {
  const std::string hint = way_out_of_separator(line_, dialect_.separator);
  if (hint.empty()) return;
  fail(fmt::format("fields separated by {}", printable({&dialect_.separator, 1})), printable(line_), hint);
}

void CsvReader::require_names() const {
  if (!has_header_) return;
  for (size_t i = 0; i < width_; ++i) {
    if (!columns_[i].name.empty() || columns_[i].role == Role::passed_over || i == 0) continue;
    fail(fmt::format("a name for column {}", i), "''",
         "name it, or leave it out; --header no if the row is an example");
  }
}

std::optional<size_t> CsvReader::place_of(const std::string& wanted) const {
  if (has_header_) {
    const auto named = std::find_if(columns_.begin(), columns_.end(),
                                    [&](const CsvFileColumn& column) { return column.name == wanted; });
    if (named != columns_.end()) return static_cast<size_t>(named - columns_.begin());
  }
  if (wanted == "first") return 0;
  if (wanted == "last") return width_ - 1;
  size_t position = 0;
  if (parse_number(std::string_view(wanted), position) && position < width_) return position;
  return std::nullopt;
}

void CsvReader::no_such_column(const char* what, const std::string& wanted) const {
  std::vector<std::string> names;
  for (const CsvFileColumn& column : columns_) names.push_back(printable(column.name));
  constexpr size_t most_shown = 20;
  const bool cut = names.size() > most_shown;
  names.resize(std::min(names.size(), most_shown));
  fail(fmt::format("a {} column {}", what, printable(wanted)),
       has_header_
           ? fmt::format("{} columns of other names: {}{}", width_, fmt::join(names, ", "), cut ? " ..." : "")
           : fmt::format("{} columns without names", width_),
       "name a column of the header, a position from 0, first or last");
}

void CsvReader::find_roles() {
  const TableSchema* like = options_.like;
  const auto find = [&](const std::string& wanted, const std::string& name, const char* what) {
    std::optional<size_t> place;
    if (wanted.empty()) return place;
    if (has_header_ && !name.empty()) {
      place = place_of(name);
      if (place && columns_[*place].name != name) place.reset();
    }
    if (!place && like != nullptr && options_.may_lack_label && what[0] == 'l') return place;
    if (!place) place = place_of(wanted);
    if (!place) no_such_column(what, wanted);
    return place;
  };
  label_ = find(options_.label_column, like == nullptr ? "" : like->label, "label");
  group_ = find(options_.group_column, like == nullptr ? "" : like->group, "group");
  if (label_ && label_ == group_) {
    fail("two columns, one of labels and one of groups", fmt::format("column {} for both", *label_),
         "choose another label column or another group column");
  }
  if (like == nullptr) {
    for (const std::string& name : options_.drop) {
      const std::optional<size_t> place = place_of(name);
      if (!place) no_such_column("dropped", name);
      if (place == label_ || place == group_) {
        fail(fmt::format("a column of features to drop, not {}", printable(name)),
             place == label_ ? "the label column" : "the group column", "choose another");
      }
      columns_[*place].role = Role::passed_over;
    }
    for (const std::string& name : options_.keep) {
      if (!place_of(name)) no_such_column("kept", name);
    }
  }
  if (label_) columns_[*label_].role = Role::label;
  if (group_) columns_[*group_].role = Role::group;
}

void CsvReader::follow_schema() {
  const TableSchema& like = *options_.like;
  if (!has_header_ || !like.has_header) {
    follow_places(like);
    return;
  }
  std::vector<std::string> names, wanted;
  std::vector<size_t> here;
  for (size_t i = 0; i < width_; ++i) {
    CsvFileColumn& column = columns_[i];
    if (column.role != Role::feature) continue;
    const bool is_known = std::any_of(like.columns.begin(), like.columns.end(),
                                      [&](const SchemaColumn& of) { return of.name == column.name; });
    const bool is_role = column.name == like.label || column.name == like.group;
    const bool is_dropped =
        std::find(like.dropped.begin(), like.dropped.end(), column.name) != like.dropped.end();
    if (!is_known && (is_dropped || (is_role && !column.name.empty()))) {
      column.role = Role::passed_over;
      continue;
    }
    names.push_back(column.name);
    here.push_back(i);
  }
  for (const SchemaColumn& column : like.columns) wanted.push_back(column.name);
  const std::vector<size_t> places = match_columns(path_, lines_->number(), names, like.file, wanted);
  for (size_t i = 0; i < here.size(); ++i) {
    columns_[here[i]].schema_place = static_cast<int64_t>(places[i]);
  }
}

void CsvReader::follow_places(const TableSchema& like) {
  const auto width = static_cast<int64_t>(width_);
  const bool lacks_label = options_.may_lack_label && like.label_place >= 0 && width == like.width - 1;
  const bool has_labels_file = !label_ && like.label_place >= 0 && !options_.may_lack_label;
  if (width != like.width && !lacks_label && !(has_labels_file && width == like.width - 1)) {
    fail(fmt::format("{} columns, as in {}", like.width, like.file), fmt::format("{}", width_),
         "prepare all sets in the same way, or give both tables headers");
  }
  const bool is_shorter = width == like.width - 1;
  if (options_.may_lack_label && like.label_place >= 0 && !is_shorter) {
    label_ = static_cast<size_t>(like.label_place);
    columns_[*label_].role = Role::label;
  }
  if (group_) {
    columns_[*group_].role = Role::feature;
    group_ =
        static_cast<size_t>(like.group_place - (is_shorter && like.group_place > like.label_place ? 1 : 0));
    columns_[*group_].role = Role::group;
  }
  std::vector<bool> is_feature(width_, false);
  for (size_t k = 0; k < like.columns.size(); ++k) {
    int64_t place = like.columns[k].place;
    if (is_shorter && place > like.label_place) --place;
    columns_[static_cast<size_t>(place)].schema_place = static_cast<int64_t>(k);
    is_feature[static_cast<size_t>(place)] = true;
  }
  for (size_t i = 0; i < width_; ++i) {
    if (!is_feature[i] && columns_[i].role == Role::feature) columns_[i].role = Role::passed_over;
  }
}

void CsvReader::place_numbers() {
  std::vector<size_t> order;
  for (size_t i = 0; i < width_; ++i) {
    CsvFileColumn& column = columns_[i];
    if (column.role != Role::feature) continue;
    if (options_.like != nullptr) {
      column.is_text = !options_.like->columns[static_cast<size_t>(column.schema_place)].categories.empty();
    }
    order.push_back(i);
  }
  if (options_.like != nullptr) {
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return columns_[a].schema_place < columns_[b].schema_place; });
  }
  feature_order_ = order;
  numbers_a_row_ = 0;
  for (const size_t i : order) {
    if (!columns_[i].is_text) columns_[i].at = numbers_a_row_++;
  }
}

}  // namespace bilevel
