#include "bilevel/data/feature_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bilevel/data/csv.h"
#include "bilevel/data/file_error.h"
#include "bilevel/data/idx.h"
#include "bilevel/data/label_files.h"
#include "bilevel/data/npy.h"
#include "bilevel/data/svmlight.h"

namespace bilevel {
namespace {

// IDX and NPY: any array whose first dimension counts the examples.
void take_array(const std::string& path, Tensor array, at::ScalarType dtype, LabelledFeatures& result) {
  if (array.dim() < 2 || array.numel() == 0) {
    line_error(path, 0, "features of at least one example, examples x features or images", array_text(array),
               "are the features and the labels swapped?");
  }
  if (array.dim() > 2) result.image = array.sizes().slice(1).vec();
  result.stored = array.scalar_type();
  array = array.reshape({array.size(0), -1});
  Features& features = result.features;
  features.dense = array.to(dtype);
  if (result.stored == at::kByte) features.dense = features.dense.div_(255);
  const Tensor bad = features.dense.isfinite().all(1).logical_not().nonzero();
  if (bad.size(0) > 0) {
    const int64_t row = bad[0][0].item<int64_t>();
    const int64_t column = features.dense[row].isfinite().logical_not().nonzero()[0][0].item<int64_t>();
    line_error(path, 0, fmt::format("finite features as {}", at::toString(dtype)),
               fmt::format("{} in example {}, column {}, and {} such examples in all",
                           array[row][column].item<double>(), row, column, bad.size(0)),
               "drop or fill such examples first");
  }
}

void tell(const FeatureFileOptions& options, const std::vector<std::string>& notes) {
  if (!options.note) return;
  for (const std::string& note : notes) options.note(note);
}

void take_table(const std::string& path, CsvTable table, LabelledFeatures& result) {
  if (table.values.size(1) == 0) {
    line_error(path, 0, "columns of features", "one column only", "are the features and the labels swapped?");
  }
  result.features.dense = table.values;
  result.labels = table.labels;
  result.groups = table.groups;
  result.rows = table.rows;
  result.names = std::move(table.names);
  result.schema = std::move(table.schema);
  result.label_names = result.schema.label_names;
  result.group_names = result.schema.group_names;
}

// `first`: what was read before, whose schema a table follows.
LabelledFeatures read_one(const LabelledFile& file, FileFormat format, const FeatureFileOptions& options,
                          const LabelledFeatures* first) {
  LabelledFeatures result;
  if (format == FileFormat::idx) {
    take_array(file.features, read_idx(file.features), options.dtype, result);
  } else if (format == FileFormat::npy) {
    take_array(file.features, read_npy(file.features), options.dtype, result);
  } else {
    CsvOptions csv = options.table_options();
    csv.is_tsv = format == FileFormat::tsv;
    if (file.labels.empty()) csv.label_column = options.label_column;
    csv.labels_are_numbers = options.labels_are_numbers;
    csv.group_column = options.group_column;
    const bool follows = first != nullptr && !first->schema.columns.empty();
    if (follows) csv.like = &first->schema;
    CsvTable table = read_csv(file.features, csv);
    tell(options, table.notes);
    take_table(file.features, std::move(table), result);
  }
  return result;
}

void complete_schema(const std::string& file, LabelledFeatures& examples) {
  TableSchema& schema = examples.schema;
  schema.label_names = examples.label_names;
  if (schema.form == TableSchema::Form::table && !schema.columns.empty()) return;
  schema.form = examples.features.is_sparse() ? TableSchema::Form::sparse : TableSchema::Form::array;
  schema.file = file;
  schema.width_of_array = examples.features.columns();
  schema.is_bytes = examples.stored == at::kByte;
  schema.image = examples.image;
}

// An option that would change nothing is a mistake.
void refuse_table_options(const FeatureFileOptions& o, const std::string& file) {
  const FeatureFileOptions defaults;
  const auto refuse = [&](const char* name, bool given) {
    if (!given) return;
    throw std::invalid_argument(
        fmt::format("{}: applies to tables (CSV, TSV) only; {} is not a table; leave it out", name, file));
  };
  refuse("drop", !o.drop.empty());
  refuse("keep", !o.keep.empty());
  refuse("missing", o.missing != defaults.missing);
  refuse("separator", o.separator != defaults.separator);
  refuse("decimal", o.decimal != defaults.decimal);
  refuse("header", o.header != defaults.header);
}

// Bytes are divided by 255: beside numbers that are not, one feature would have two scales.
void require_same_scale(const std::vector<LabelledFile>& files, const std::vector<LabelledFeatures>& read) {
  for (size_t i = 1; i < read.size(); ++i) {
    const bool bytes = read[i].stored == at::kByte;
    if (bytes == (read[0].stored == at::kByte)) continue;
    const std::string& of_bytes = files[bytes ? i : 0].features;
    const std::string& of_numbers = files[bytes ? 0 : i].features;
    line_error(files[i].features, 0,
               fmt::format("{} as in {}", bytes ? "numbers" : "bytes (uint8)", files[0].features),
               bytes ? std::string("bytes (uint8)") : fmt::format("{}", at::toString(read[i].stored)),
               fmt::format("bytes are divided by 255 and other numbers are not: save both alike, {} as "
                           "X.astype('uint8') or {} as X.astype('float32') / 255",
                           of_numbers, of_bytes));
  }
}

}  // namespace

Features append_ones(const Features& features) {
  Features result;
  if (!features.is_sparse()) {
    result.dense = at::empty({features.rows(), features.columns() + 1}, features.dense.options());
    result.dense.narrow(1, 0, features.columns()).copy_(features.dense);
    result.dense.select(1, features.columns()).fill_(1);
    return result;
  }
  const SparseMatrix& from = features.sparse;
  // Row i moves on by i places and gains one entry at its end.
  const Tensor last = from.row_start.slice(0, 1) + at::arange(from.rows, from.row_start.options());
  Tensor old = at::ones({from.nonzeros() + from.rows}, at::TensorOptions().dtype(at::kBool));
  old.index_fill_(0, last, 0);
  SparseMatrix& to = result.sparse;
  to.rows = from.rows;
  to.columns = from.columns + 1;
  to.row_start = from.row_start + at::arange(from.rows + 1, from.row_start.options());
  to.column = at::full({old.numel()}, from.columns, from.column.options()).masked_scatter_(old, from.column);
  to.value = at::ones({old.numel()}, from.value.options()).masked_scatter_(old, from.value);
  return result;
}

CsvOptions FeatureFileOptions::table_options() const {
  const auto one_of = [](const char* name, const std::string& value,
                         const std::vector<std::pair<std::string, char>>& values) {
    for (const auto& [word, letter] : values) {
      if (value == word) return letter;
    }
    std::vector<std::string> words;
    for (const auto& [word, letter] : values) words.push_back(word);
    throw std::invalid_argument(
        fmt::format("{} = {}: must be one of {}", name, value, fmt::join(words, ", ")));
  };
  CsvOptions csv{.dtype = dtype};
  csv.separator =
      one_of("separator", separator, {{"auto", '\0'}, {"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}});
  csv.decimal = one_of("decimal", decimal, {{"auto", '\0'}, {"point", '.'}, {"comma", ','}});
  csv.header =
      static_cast<CsvHeader>(one_of("header", header, {{"auto", '\0'}, {"yes", '\1'}, {"no", '\2'}}));
  csv.drop = drop;
  csv.keep = keep;
  csv.missing = missing;
  return csv;
}

std::vector<LabelledFeatures> read_labelled_files(const std::vector<LabelledFile>& files,
                                                  const FeatureFileOptions& options) {
  std::vector<FileFormat> formats;
  for (const LabelledFile& file : files) {
    formats.push_back(file_format(file.features));
    if (!options.group_column.empty() && formats.back() != FileFormat::csv &&
        formats.back() != FileFormat::tsv) {
      line_error(file.features, 0,
                 fmt::format("a table (CSV or TSV) with a group column {}", options.group_column),
                 name_of(formats.back()), "give the groups in a file of their own");
    }
    if ((formats.back() == FileFormat::svmlight) != (formats.front() == FileFormat::svmlight)) {
      line_error(
          file.features, 0,
          fmt::format("{} as in {}", formats.front() == FileFormat::svmlight ? "svmlight" : "a dense format",
                      files.front().features),
          name_of(formats.back()), "give all sets in sparse or all in dense formats");
    }
  }
  const bool has_table = std::any_of(formats.begin(), formats.end(), [](FileFormat format) {
    return format == FileFormat::csv || format == FileFormat::tsv;
  });
  if (!files.empty() && !has_table) refuse_table_options(options, files.front().features);
  std::vector<LabelledFeatures> result;
  if (!files.empty() && formats.front() == FileFormat::svmlight) {
    std::vector<std::string> paths;
    for (const LabelledFile& file : files) paths.push_back(file.features);
    for (LabelledSparse& read : read_svmlight_files(paths, {.dtype = options.dtype})) {
      LabelledFeatures& examples = result.emplace_back();
      examples.features.sparse = std::move(read.examples);
      examples.labels = std::move(read.labels);
      examples.schema.first_index = read.first_index;
    }
  } else {
    for (size_t i = 0; i < files.size(); ++i) {
      result.push_back(read_one(files[i], formats[i], options, result.empty() ? nullptr : &result.front()));
    }
    require_same_scale(files, result);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const int64_t columns = result[i].features.columns(), first = result[0].features.columns();
    if (columns != first) {
      line_error(files[i].features, 0, fmt::format("{} features, as in {}", first, files[0].features),
                 fmt::format("{}", columns), "prepare all sets in the same way");
    }
    add_labels(files[i], options.labels_are_numbers, i == 0 ? nullptr : &result[0], result[i]);
  }
  for (size_t i = 1; i < files.size(); ++i) {
    if (result[i].label_names == result[0].label_names) continue;
    line_error(result[i].labels_from, 0, fmt::format("the classes of {}", result[0].labels_from),
               "other names of classes", "give all sets in the same format");
  }
  if (!files.empty()) complete_schema(files[0].features, result[0]);
  return result;
}

LabelledFeatures read_new_examples(const std::string& path, const TableSchema& schema,
                                   const FeatureFileOptions& options) {
  const FileFormat format = file_format(path);
  const bool is_table = format == FileFormat::csv || format == FileFormat::tsv;
  using Form = TableSchema::Form;
  LabelledFeatures result;
  if (format == FileFormat::svmlight) {
    if (schema.form != Form::sparse) {
      line_error(path, 0, fmt::format("a dense format, as in {}", schema.file), "svmlight", "convert it");
    }
    LabelledSparse read =
        read_svmlight(path, {.base = schema.first_index == 0 ? IndexBase::zero : IndexBase::one,
                             .columns = schema.width_of_array,
                             .dtype = options.dtype});
    result.features.sparse = std::move(read.examples);
    result.labels = std::move(read.labels);
  } else if (schema.form == Form::sparse) {
    line_error(path, 0, fmt::format("svmlight, as in {}", schema.file), name_of(format), "convert it");
  } else if (is_table && schema.form == Form::table) {
    CsvOptions csv = options.table_options();
    csv.is_tsv = format == FileFormat::tsv;
    csv.label_column = schema.label_place < 0 ? "" : fmt::format("{}", schema.label_place);
    csv.group_column = schema.group_place < 0 ? "" : fmt::format("{}", schema.group_place);
    if (options.missing == FeatureFileOptions{}.missing) csv.missing = schema.missing;
    csv.labels_are_numbers = options.labels_are_numbers;
    csv.like = &schema;
    csv.may_lack_label = true;
    CsvTable table = read_csv(path, csv);
    tell(options, table.notes);
    take_table(path, std::move(table), result);
  } else {
    result = read_one({path, "none"}, format, options, nullptr);
    if ((result.stored == at::kByte) != schema.is_bytes) {
      line_error(path, 0,
                 fmt::format("{} as in {}", schema.is_bytes ? "bytes (uint8)" : "numbers", schema.file),
                 fmt::format("{}", at::toString(result.stored)),
                 "bytes are divided by 255 and other numbers are not: save both alike");
    }
    result.labels = Tensor();
  }
  if (result.features.columns() != schema.features()) {
    line_error(path, 0, fmt::format("{} features, as in {}", schema.features(), schema.file),
               fmt::format("{}", result.features.columns()), "prepare it as the training file was");
  }
  return result;
}

}  // namespace bilevel
