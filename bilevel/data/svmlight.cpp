#include "bilevel/data/svmlight.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bilevel/core/require.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy_header.h"

namespace bilevel {
namespace {

// One file's rows with the indices as written.
struct Rows {
  std::vector<double> labels;
  std::vector<int64_t> row_start{0};
  std::vector<int32_t> index;
  std::vector<double> value;
  int32_t smallest = std::numeric_limits<int32_t>::max();
  int32_t largest = -1;
  int64_t largest_line = 0;
};

class SvmlightReader {
 public:
  SvmlightReader(const std::string& path, const SvmlightOptions& options)
      : lines_(path, options.largest_bytes), options_(options) {}

  Rows read() {
    std::string_view line;
    while (lines_.next(line)) {
      line = line.substr(0, line.find('#'));
      std::string_view word = next_word(line);
      if (word.empty()) continue;
      add_label(word);
      while (!(word = next_word(line)).empty()) add_pair(word);
      rows_.row_start.push_back(static_cast<int64_t>(rows_.index.size()));
    }
    if (rows_.labels.empty()) {
      line_error(lines_.path(), 0, "lines of LABEL INDEX:VALUE ...", "none", "check the path");
    }
    return std::move(rows_);
  }

 private:
  [[noreturn]] void fail(std::string_view expected, std::string_view found, std::string_view hint) const {
    line_error(lines_.path(), lines_.number(), expected, found, hint);
  }
  static std::string_view next_word(std::string_view& line) {
    line = trimmed(line);
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(word.size());
    return word;
  }

  void add_label(std::string_view word) {
    double label = 0;
    if (!parse_number(word, label) || !std::isfinite(label)) {
      fail("a finite number as label", printable(word),
           word.find(',') != std::string_view::npos ? "several labels an example are not supported"
                                                    : "every line is LABEL INDEX:VALUE ...");
    }
    rows_.labels.push_back(label);
  }

  void add_pair(std::string_view word) {
    const size_t colon = word.find(':');
    if (word.starts_with("qid:")) {
      if (options_.ignore_query_ids) return;
      fail("INDEX:VALUE", printable(word),
           "query ids belong to ranking data; if this is none, remove them, for example with sed 's/ "
           "qid:[0-9]*//'");
    }
    int64_t index = 0;
    double value = 0;
    if (colon == std::string_view::npos || !parse_number(word.substr(0, colon), index) ||
        !parse_number(word.substr(colon + 1), value)) {
      fail("INDEX:VALUE", printable(word), "every line is LABEL INDEX:VALUE ...");
    }
    const int64_t lowest = options_.base == IndexBase::one ? 1 : 0;
    if (index < lowest || index > options_.largest_columns) {
      fail(fmt::format("an index from {} to {}", lowest, options_.largest_columns), fmt::format("{}", index),
           index == 0 ? "do the indices begin at 0?"
                      : "is the file damaged? Number the features without gaps");
    }
    const bool fits = options_.dtype == at::kDouble || std::isfinite(static_cast<float>(value));
    if (!std::isfinite(value) || !fits) {
      fail(fmt::format("a finite {} as value of index {}", at::toString(options_.dtype), index),
           printable(word.substr(colon + 1)), "leave the value or the example out");
    }
    const bool first = std::cmp_equal(rows_.row_start.back(), rows_.index.size());
    if (!first && index <= rows_.index.back()) {
      fail("indices that increase along a line", fmt::format("{} after {}", index, rows_.index.back()),
           "sort each line by index, and add up repeated ones");
    }
    const auto narrow = static_cast<int32_t>(index);
    rows_.smallest = std::min(rows_.smallest, narrow);
    if (narrow > rows_.largest) {
      rows_.largest = narrow;
      rows_.largest_line = lines_.number();
    }
    rows_.index.push_back(narrow);
    rows_.value.push_back(value);
  }

  LineReader lines_;
  const SvmlightOptions& options_;
  Rows rows_;
};

LabelledSparse to_matrix(Rows rows, int32_t base, int64_t columns, at::ScalarType dtype) {
  LabelledSparse result;
  result.labels = at::tensor(rows.labels, at::TensorOptions().dtype(at::kDouble));
  result.first_index = base;
  SparseMatrix& matrix = result.examples;
  matrix.rows = result.labels.numel();
  matrix.columns = columns;
  matrix.row_start = at::tensor(rows.row_start, at::TensorOptions().dtype(at::kLong));
  matrix.column = at::tensor(rows.index, at::TensorOptions().dtype(at::kInt)).sub_(base);
  matrix.value = at::tensor(rows.value, at::TensorOptions().dtype(at::kDouble)).to(dtype);
  return result;
}

}  // namespace

void SvmlightOptions::validate() const {
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw std::invalid_argument(
        fmt::format("svmlight: dtype = {}: must be float or double", at::toString(dtype)));
  }
  if (largest_columns < 1 || largest_columns >= std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument(
        fmt::format("svmlight: largest_columns = {}: must be 1 to 2^31-2", largest_columns));
  }
  if (columns < 0 || columns > largest_columns) {
    throw std::invalid_argument(
        fmt::format("svmlight: columns = {}: must be 0 to {}", columns, largest_columns));
  }
  require_at_least("svmlight: largest_bytes", largest_bytes, 1);
}

LabelledSparse read_svmlight(const std::string& path, const SvmlightOptions& options) {
  return std::move(read_svmlight_files({path}, options).front());
}

std::vector<LabelledSparse> read_svmlight_files(const std::vector<std::string>& paths,
                                                const SvmlightOptions& options) {
  options.validate();
  std::vector<Rows> files;
  bool zero = false;
  int64_t largest = -1;
  for (const std::string& path : paths) {
    files.push_back(SvmlightReader(path, options).read());
    zero = zero || files.back().smallest == 0;
    largest = std::max<int64_t>(largest, files.back().largest);
  }
  const int32_t base =
      options.base == IndexBase::zero || (options.base == IndexBase::automatic && zero) ? 0 : 1;
  const int64_t columns = options.columns > 0 ? options.columns : std::max<int64_t>(largest - base + 1, 0);
  std::vector<LabelledSparse> result;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].largest - base >= columns) {
      line_error(paths[i], files[i].largest_line,
                 fmt::format("indices from {} to {} for {} columns", base, columns - 1 + base, columns),
                 fmt::format("{}", files[i].largest), "read it together with the files it belongs to");
    }
    result.push_back(to_matrix(std::move(files[i]), base, columns, options.dtype));
  }
  return result;
}

}  // namespace bilevel
