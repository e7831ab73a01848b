#include "bilevel/data/label_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <stdexcept>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/csv.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/idx.h"
#include "bilevel/data/line_reader.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/npy_header.h"
#include "bilevel/data/svmlight.h"

namespace bilevel {
namespace {

constexpr int64_t bytes_of_names = 1 << 16;                 // that are looked at
constexpr double largest_whole_label = 9007199254740992.0;  // 2^53: whole numbers are exact up to here

// Short lines of plain text.
bool is_list_of_names(const std::string& path) {
  const std::unique_ptr<ByteSource> source = open_bytes(path, int64_t{1} << 40);
  std::string begin(bytes_of_names, '\0');
  begin.resize(source->read(begin.data(), begin.size()));
  constexpr size_t longest_name = 256;
  size_t length = 0;
  for (const char letter : begin) {
    if (letter == '\n') {
      length = 0;
    } else if (++length > longest_name || (static_cast<unsigned char>(letter) < ' ' && letter != '\r')) {
      return false;
    }
  }
  return !begin.empty();
}

// Of a file of labels: a first line that comes again below is no header.
CsvHeader list_header(const std::string& path) {
  LineReader lines(path, int64_t{1} << 40);
  std::string first;
  double ignored = 0;
  for (std::string_view line; lines.next(line);) {
    line = trimmed(line);
    if (line.empty()) continue;
    if (first.empty()) {
      first = line;
      if (parse_number(line, ignored)) return CsvHeader::absent;
    } else if (line == first) {
      return CsvHeader::absent;
    }
  }
  return CsvHeader::automatic;
}

}  // namespace

std::string array_text(const Tensor& array) {
  return fmt::format("{} of shape ({})", at::toString(array.scalar_type()), fmt::join(array.sizes(), ", "));
}

Tensor read_labels(const std::string& path, bool any_number, std::vector<std::string>* names) {
  FileFormat format = FileFormat::csv;
  try {
    format = file_format(path);
  } catch (const std::runtime_error&) {
    // A list of names has no ending and no separators to know it by.
    if (names == nullptr || !is_list_of_names(path)) throw;
  }
  if (format == FileFormat::svmlight) return read_svmlight(path).labels;
  if (format == FileFormat::csv || format == FileFormat::tsv) {
    TableSchema known;
    CsvOptions csv{.label_column = "first", .is_tsv = format == FileFormat::tsv};
    if (names != nullptr && !names->empty()) {
      known = {.file = "the training labels", .width = 1, .label_place = 0, .label_names = *names};
      csv.like = &known;
    }
    csv.labels_are_numbers = any_number;
    // Names alone could be a header and names.
    if (names != nullptr) csv.header = list_header(path);
    CsvTable table = read_csv(path, csv);
    if (table.values.size(1) != 0) {
      line_error(path, 0, "one label per line", fmt::format("{} columns", table.values.size(1) + 1),
                 "are the features and the labels swapped?");
    }
    if (names == nullptr && !table.schema.label_names.empty()) {
      line_error(path, 0, "whole numbers",
                 fmt::format("names such as {}", printable(table.schema.label_names[0])),
                 "number them: 0, 1, 2, ...");
    }
    if (names != nullptr) *names = table.schema.label_names;
    return table.labels;
  }
  Tensor labels = format == FileFormat::idx ? read_idx(path) : read_npy(path);
  if (labels.dim() == 2 && labels.size(1) == 1) {
    line_error(path, 0, "labels as a vector", array_text(labels), "save y.reshape(-1)");
  }
  if (labels.dim() != 1) {
    line_error(path, 0, "labels as a vector of whole numbers", array_text(labels),
               "are the features and the labels swapped? One-hot rows are not read: save Y.argmax(1)");
  }
  if (any_number) return labels.to(at::kDouble);
  if (labels.is_floating_point()) {  // as NumPy saves them by default: 0.0, 1.0, 2.0
    const Tensor numbers = labels.to(at::kDouble);
    const Tensor bad = (numbers.ne(numbers.floor()) | numbers.abs().gt(largest_whole_label)).nonzero();
    if (bad.size(0) > 0) {
      const int64_t example = bad[0][0].item<int64_t>();
      line_error(path, 0, "labels as whole numbers",
                 fmt::format("{} as label of example {}, and {} such labels in all",
                             numbers[example].item<double>(), example, bad.size(0)),
                 "number the classes: 0, 1, 2, ... Targets of a regression are not read");
    }
  }
  return labels.to(at::kLong);
}

void add_labels(const LabelledFile& file, bool any_number, const LabelledFeatures* first,
                LabelledFeatures& examples) {
  examples.labels_from = file.labels.empty() ? file.features : file.labels;
  if (!file.labels.empty()) {
    if (first != nullptr) examples.label_names = first->label_names;
    examples.labels = read_labels(file.labels, any_number, &examples.label_names);
    if (first != nullptr && examples.label_names != first->label_names) {
      line_error(file.labels, 0, fmt::format("whole numbers as labels, as in {}", first->labels_from),
                 fmt::format("names such as {}", printable(examples.label_names.front())),
                 "give the classes of all sets in the same way");
    }
    if (examples.rows.defined() && examples.labels.numel() > examples.rows[-1].item<int64_t>()) {
      examples.labels = examples.labels.index_select(0, examples.rows);
    }
  } else if (!examples.labels.defined()) {
    line_error(file.features, 0, "a file of labels beside it",
               fmt::format("{}, which holds no labels", name_of(file_format(file.features))),
               "name the file of its labels");
  }
  if (examples.labels.numel() != examples.features.rows()) {
    line_error(file.labels, 0,
               fmt::format("{} labels, one per example of {}", examples.features.rows(), file.features),
               fmt::format("{}", examples.labels.numel()), "give the labels of the same examples");
  }
}

}  // namespace bilevel
