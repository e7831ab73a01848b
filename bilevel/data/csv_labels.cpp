#include "bilevel/data/csv_labels.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "bilevel/data/csv_diagnosis.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {
namespace {

constexpr double largest_csv_label = 9007199254740992.0;  // 2^53: whole numbers are exact up to here

bool parse_label(std::string field, char decimal, double& value) {
  if (decimal == ',') {
    const size_t comma = field.find(',');
    if (comma != std::string::npos) field[comma] = '.';
  }
  return parse_number(std::string_view(field), value);
}

bool is_whole(double value) { return value == std::floor(value) && std::abs(value) <= largest_csv_label; }

[[noreturn]] void no_whole_number(const CsvNames& from, size_t k, const std::string& as_in) {
  const bool is_label = from.what == "label";
  line_error(from.path, from.text.first_lines()[k],
             fmt::format("a whole number as {} in {}{}", from.what, from.column, as_in),
             printable(from.text.texts()[k]),
             way_out_of_field(from.text.texts()[k], is_label ? CsvColumn::label : CsvColumn::group));
}

Tensor as_tensor(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong));
}

Tensor known_names(const CsvNames& from, const std::vector<std::string>& names) {
  std::vector<int64_t> positions = positions_in(from.text, names);
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t code = from.text.codes()[i];
    if (positions[i] >= 0) continue;
    if (code < 0) {
      positions[i] = 0;
      continue;
    }
    if (from.may_be_unknown) continue;  // it stays -1
    constexpr size_t most_shown = 20;
    const std::vector<std::string> some(
        names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(most_shown, names.size())));
    const auto k = static_cast<size_t>(code);
    line_error(from.path, from.text.first_lines()[k],
               fmt::format("a {} of {} in {} ({}{})", from.what, from.like->file, from.column,
                           fmt::join(some, ", "), some.size() < names.size() ? " ..." : ""),
               printable(from.text.texts()[k]), "is it a typing error, or does the training file lack it?");
  }
  return as_tensor(positions);
}

// New rows some of which have no label: there is nothing to compare with.
bool lacks_some(const CsvNames& from) {
  const std::vector<int64_t>& codes = from.text.codes();
  return from.may_be_unknown &&
         std::any_of(codes.begin(), codes.end(), [](int64_t code) { return code == CsvText::missing; });
}

}  // namespace

Tensor take_numbers(const CsvNames& from) {
  if (lacks_some(from)) return {};
  std::vector<double> values, rows;
  for (size_t k = 0; k < from.text.texts().size(); ++k) {
    double value = 0;
    if (!parse_label(from.text.texts()[k], from.decimal, value) || !std::isfinite(value)) {
      if (from.may_be_unknown) return {};
      line_error(from.path, from.text.first_lines()[k], fmt::format("a finite number in {}", from.column),
                 printable(from.text.texts()[k]), "choose another column with --label-column");
    }
    values.push_back(value);
  }
  for (const int64_t code : from.text.codes()) {
    rows.push_back(code < 0 ? std::numeric_limits<double>::quiet_NaN() : values[static_cast<size_t>(code)]);
  }
  return at::tensor(rows, at::TensorOptions().dtype(at::kDouble));
}

Tensor take_names(const CsvNames& from, std::vector<std::string>& names) {
  if (lacks_some(from)) return {};
  if (!names.empty()) return known_names(from, names);
  const std::vector<std::string>& texts = from.text.texts();
  std::vector<int64_t> values;
  bool is_named = false;
  size_t fraction = texts.size(), name = texts.size();
  for (size_t k = 0; k < texts.size(); ++k) {
    double value = 0;
    const bool is_number = parse_label(texts[k], from.decimal, value);
    if (!is_number && !is_named) name = k;
    is_named = is_named || !is_number;
    if (is_number && !is_whole(value) && fraction == texts.size()) fraction = k;
    values.push_back(is_number && is_whole(value) ? static_cast<int64_t>(value) : 0);
  }
  const bool must_be_numbers = from.like != nullptr;
  if (must_be_numbers && (is_named || fraction < texts.size())) {
    if (from.may_be_unknown) return {};
    no_whole_number(from, std::min(name, fraction), ", as in " + from.like->file);
  }
  if (!is_named) {
    if (fraction < texts.size()) no_whole_number(from, fraction, "");
    std::vector<int64_t> labels;
    labels.reserve(from.text.codes().size());
    for (const int64_t code : from.text.codes())
      labels.push_back(code < 0 ? 0 : values[static_cast<size_t>(code)]);
    return as_tensor(labels);
  }
  const size_t rows = from.text.codes().size();
  constexpr size_t long_enough = 10;
  if (rows >= long_enough && 2 * texts.size() > rows) {
    line_error(from.path, from.text.first_lines().front(),
               fmt::format("{}s that several rows share in {}", from.what, from.column),
               fmt::format("{} different ones in {} rows", texts.size(), rows),
               from.what == "label" ? "choose another column with --label-column" : "choose another column");
  }
  names = texts;
  std::sort(names.begin(), names.end());
  return known_names(from, names);
}

}  // namespace bilevel
