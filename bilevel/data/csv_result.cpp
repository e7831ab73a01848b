// The table that rows make: numbers, categories, labels, and the schema that other tables follow.

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
constexpr double not_a_value = std::numeric_limits<double>::quiet_NaN();
}  // namespace

CsvTable CsvReader::finish() {
  CsvTable table;
  TableSchema& schema = table.schema;
  if (options_.like != nullptr) {
    schema = *options_.like;
  } else {
    leave_out_ids(table.notes);
    begin_schema(schema);
  }
  if (label_) {
    const CsvNames from{.path = path_,
                        .what = "label",
                        .column = column_text(*label_),
                        .text = columns_[*label_].text,
                        .decimal = dialect_.decimal,
                        .like = options_.like,
                        .may_be_unknown = options_.may_lack_label};
    table.labels = options_.labels_are_numbers ? take_numbers(from) : take_names(from, schema.label_names);
  }
  if (group_) {
    table.groups = take_names({.path = path_,
                               .what = "group",
                               .column = column_text(*group_),
                               .text = columns_[*group_].text,
                               .decimal = dialect_.decimal,
                               .like = options_.like},
                              schema.group_names);
  }
  table.values = join_features(schema, table.notes);
  if (options_.missing == "drop" && !dropped_rows_.empty()) drop_rows(table);
  if (options_.like == nullptr) take_means(table.values, schema);
  if (options_.missing == "mean" && missing_.count > 0) fill_means(table, schema);
  if (has_header_ || has_text()) table.names = schema.feature_names();
  note_dialect(table.notes);
  note_truths(table.notes);
  return table;
}

bool CsvReader::has_text() const {
  return std::any_of(feature_order_.begin(), feature_order_.end(),
                     [&](size_t i) { return columns_[i].is_text; });
}

std::string CsvReader::name_of(size_t i) const {
  return has_header_ ? columns_[i].name : fmt::format("column {}", i);
}

Tensor CsvReader::joined_blocks() {
  if (numbers_a_row_ == 0) {
    return at::empty({static_cast<int64_t>(rows_), 0}, at::TensorOptions().dtype(options_.dtype));
  }
  const auto full = static_cast<int64_t>((blocks_.size() - 1) * rows_a_block());
  blocks_.back() = blocks_.back().narrow(0, 0, static_cast<int64_t>(rows_) - full);
  return at::cat(blocks_);
}

void CsvReader::leave_out_ids(std::vector<std::string>& notes) {
  numbers_ = joined_blocks();
  std::vector<size_t> kept;
  for (const size_t i : feature_order_) {
    const bool is_wanted = std::any_of(options_.keep.begin(), options_.keep.end(),
                                       [&](const std::string& name) { return place_of(name) == i; });
    if (is_wanted || !holds_ids(i)) {
      kept.push_back(i);
      continue;
    }
    columns_[i].role = Role::passed_over;
    notes.push_back(fmt::format(
        "{}: {} holds a different value in every row and is left out as an id{}", path_, column_text(i),
        has_header_ && !columns_[i].name.empty() ? fmt::format("; --keep {} takes it", columns_[i].name)
                                                 : ""));
  }
  if (kept.size() == feature_order_.size()) return;
  std::vector<int64_t> columns;
  numbers_a_row_ = 0;
  for (const size_t i : kept) {
    if (columns_[i].is_text) continue;
    columns.push_back(static_cast<int64_t>(columns_[i].at));
    columns_[i].at = numbers_a_row_++;
  }
  numbers_ = numbers_.index_select(1, at::tensor(columns, at::TensorOptions().dtype(at::kLong)));
  feature_order_ = kept;
}

bool CsvReader::holds_ids(size_t i) const {
  const CsvFileColumn& column = columns_[i];
  const bool is_named_so = has_header_ && is_id_name(column.name);
  if (column.is_text) {
    constexpr size_t long_enough = 10;
    const bool all_differ = column.text.texts().size() == rows_;
    if (all_differ && (is_named_so || rows_ >= long_enough)) return true;
    require_categories(i);
    return false;
  }
  if (!is_named_so) return false;
  const Tensor values = numbers_.select(1, static_cast<int64_t>(column.at)).to(at::kDouble);
  if (!values.eq(values.floor()).all().item<bool>()) return false;
  const bool all_differ = std::cmp_equal(std::get<0>(at::_unique(values)).numel(), rows_);
  if (!all_differ && column.name.empty()) {
    line_error(path_, 1, fmt::format("a name for column {}", i), "''",
               "name it, or leave it out with --drop 0");
  }
  return all_differ;
}

void CsvReader::require_categories(size_t i) const {
  constexpr size_t most = 1000, few = 20;
  const size_t count = columns_[i].text.texts().size();
  if (count <= most && (count <= few || 2 * count <= rows_)) return;
  line_error(path_, columns_[i].first_text_line, fmt::format("numbers or categories in {}", column_text(i)),
             fmt::format("{} different texts in {} rows", count, rows_),
             looks_like_date(columns_[i].text.texts().front())
                 ? way_out_of_field(columns_[i].text.texts().front(), CsvColumn::feature)
                 : fmt::format("text cannot be used as a feature: leave the column out with --drop {}, or "
                               "choose it with --label-column if it holds the classes",
                               has_header_ ? columns_[i].name : fmt::format("{}", i)));
}

void CsvReader::begin_schema(TableSchema& schema) const {
  schema.file = path_;
  schema.has_header = has_header_;
  schema.width = static_cast<int64_t>(width_);
  schema.missing = options_.missing;
  if (label_) {
    schema.label = columns_[*label_].name;
    schema.label_place = static_cast<int64_t>(*label_);
  }
  if (group_) {
    schema.group = columns_[*group_].name;
    schema.group_place = static_cast<int64_t>(*group_);
  }
  for (const CsvFileColumn& column : columns_) {
    if (column.role == Role::passed_over && has_header_) schema.dropped.push_back(column.name);
  }
  for (const size_t i : feature_order_) {
    SchemaColumn column{.name = name_of(i), .place = static_cast<int64_t>(i)};
    if (columns_[i].is_text) {
      column.categories = columns_[i].text.texts();
      std::sort(column.categories.begin(), column.categories.end());
    }
    schema.columns.push_back(std::move(column));
  }
}

Tensor CsvReader::join_features(const TableSchema& schema, std::vector<std::string>& notes) {
  if (!numbers_.defined()) numbers_ = joined_blocks();
  if (!has_text()) return numbers_;
  Tensor values = at::zeros({static_cast<int64_t>(rows_), schema.features()}, numbers_.options());
  int64_t at = 0;
  for (size_t k = 0; k < schema.columns.size(); ++k) {
    const CsvFileColumn& column = columns_[feature_order_[k]];
    const std::vector<std::string>& categories = schema.columns[k].categories;
    if (categories.empty()) {
      values.select(1, at++).copy_(numbers_.select(1, static_cast<int64_t>(column.at)));
      continue;
    }
    const auto count = static_cast<int64_t>(categories.size());
    const Tensor codes =
        at::tensor(positions_in(column.text, categories), at::TensorOptions().dtype(at::kLong));
    const Tensor written = at::tensor(column.text.codes(), at::TensorOptions().dtype(at::kLong));
    const Tensor known = codes.ge(0).nonzero().view({-1});
    values.index_put_({known, codes.index_select(0, known) + at},
                      at::ones({known.numel()}, values.options()));
    const Tensor lacking = written.lt(0).nonzero().view({-1});
    if (lacking.numel() > 0) values.narrow(1, at, count).index_fill_(0, lacking, not_a_value);
    note_unknown(column, codes, written, feature_order_[k], notes);
    at += count;
  }
  return values;
}

void CsvReader::note_unknown(const CsvFileColumn& column, const Tensor& codes, const Tensor& written,
                             size_t i, std::vector<std::string>& notes) const {
  const Tensor unknown = (codes.lt(0) & written.ge(0)).nonzero().view({-1});
  if (unknown.numel() == 0) return;
  std::set<std::string> texts;
  for (int64_t k = 0; k < unknown.numel() && texts.size() < 5; ++k) {
    texts.insert(column.text.texts()[static_cast<size_t>(
        column.text.codes()[static_cast<size_t>(unknown[k].item<int64_t>())])]);
  }
  std::vector<std::string> shown;
  for (const std::string& text : texts) shown.push_back(printable(text));
  notes.push_back(
      fmt::format("{}: {} rows have in {} a category that {} does not have, such as {}; they count "
                  "as none of its categories",
                  path_, unknown.numel(), column_text(i), options_.like->file, fmt::join(shown, ", ")));
}

void CsvReader::drop_rows(CsvTable& table) const {
  Tensor kept = at::ones({static_cast<int64_t>(rows_)}, at::TensorOptions().dtype(at::kBool));
  kept.index_fill_(0, at::tensor(dropped_rows_, at::TensorOptions().dtype(at::kLong)), 0);
  table.rows = kept.nonzero().view({-1});
  table.values = table.values.index_select(0, table.rows);
  if (table.labels.defined()) table.labels = table.labels.index_select(0, table.rows);
  if (table.groups.defined()) table.groups = table.groups.index_select(0, table.rows);
  table.notes.push_back(fmt::format("{}: {} of {} rows have missing values and are left out", path_,
                                    dropped_rows_.size(), rows_));
}

void CsvReader::take_means(const Tensor& values, TableSchema& schema) const {
  const Tensor wide = values.to(at::kDouble);
  const Tensor has = wide.isnan().logical_not();
  const Tensor counts = has.sum(0).to(at::kDouble);
  const Tensor means = (wide.nan_to_num(0).sum(0) / counts).contiguous();
  int64_t at = 0;
  for (SchemaColumn& column : schema.columns) {
    for (int64_t k = 0; k < column.features(); ++k) {
      const auto mean = means[at++].item<double>();
      if (!std::isfinite(mean)) {
        line_error(path_, 0, fmt::format("values in column {}", printable(column.name)), "none",
                   fmt::format("leave it out with --drop {}",
                               has_header_ ? column.name : std::to_string(column.place)));
      }
      column.means.push_back(mean);
    }
  }
}

void CsvReader::fill_means(CsvTable& table, const TableSchema& schema) const {
  std::vector<double> means;
  for (const SchemaColumn& column : schema.columns) {
    means.insert(means.end(), column.means.begin(), column.means.end());
  }
  const Tensor fill =
      at::tensor(means, at::TensorOptions().dtype(at::kDouble)).to(table.values.scalar_type());
  table.values = at::where(table.values.isnan(), fill.unsqueeze(0), table.values).contiguous();
  table.notes.push_back(fmt::format("{}: {} missing values became the means of {}", path_, missing_.count,
                                    options_.like == nullptr ? "their columns" : options_.like->file));
}

void CsvReader::note_dialect(std::vector<std::string>& notes) const {
  const bool is_usual = dialect_.separator == (options_.is_tsv ? '\t' : ',') || width_ == 1;
  if (options_.separator == '\0' && !is_usual) {
    notes.push_back(fmt::format("{}: fields are separated by {}", path_, separator_name(dialect_.separator)));
  }
  if (options_.decimal == '\0' && dialect_.decimal == ',') {
    notes.push_back(fmt::format("{}: decimals are written with commas", path_));
  }
}

void CsvReader::note_truths(std::vector<std::string>& notes) const {
  for (const size_t i : feature_order_) {
    if (columns_[i].truths == 0) continue;
    notes.push_back(fmt::format("{}: True and False in {} are read as 1 and 0, because {} has numbers there",
                                path_, column_text(i), options_.like->file));
  }
}

size_t CsvReader::rows_a_block() const {
  const size_t room = static_cast<size_t>(lines_->most_bytes()) / 2;
  return std::min((size_t{1} << 20) / width_, room / width_) + 1;
}

}  // namespace bilevel
