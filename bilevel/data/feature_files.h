#pragma once
// Labelled examples from files of any of the formats that people keep them in: IDX and NPY arrays, tables as
// text, svmlight. The commands that take a user's own classification data read it here.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/csr.h"
#include "bilevel/data/csv.h"
#include "bilevel/data/table_schema.h"

namespace bilevel {

enum class FileFormat { idx, npy, csv, tsv, svmlight };
std::string_view name_of(FileFormat format);

// By the name's ending (.idx -ubyte .npy .csv .tsv .svm .svmlight .libsvm, before .gz or .xz), else by the
// first bytes or the first line. Throws std::runtime_error that lists what is accepted.
FileFormat file_format(const std::string& path);

// Examples x features, dense or sparse.
struct Features {
  Tensor dense;  // float or double, CPU; undefined = sparse
  SparseMatrix sparse;

  bool is_sparse() const { return !dense.defined(); }
  int64_t rows() const { return is_sparse() ? sparse.rows : dense.size(0); }
  int64_t columns() const { return is_sparse() ? sparse.columns : dense.size(1); }
};
// A column of ones after the others.
Features append_ones(const Features& features);

struct LabelledFile {
  std::string features;
  std::string labels;  // empty: inside `features`, which svmlight and tables can hold
};

// Unlike an ExampleSet what a file holds: labels need not be classes yet, and the rest says how to read it.
struct LabelledFeatures {
  Features features;
  Tensor labels;  // as written, whole or not, or positions in label_names; one per example
  Tensor groups;  // the same of groups, where a group column was asked for
  std::vector<std::string> label_names, group_names;  // the same for all files; empty = whole numbers
  Tensor rows;                          // int64: which rows of the file were kept; undefined = all
  std::string labels_from;              // the file that they came from, for messages
  std::vector<std::string> names;       // of the features, where a table has a header
  at::ScalarType stored = at::kDouble;  // what the numbers were in the file, of an array
  std::vector<int64_t> image;  // the sizes of one example where the file has them: 28 28; empty = a plain row
  TableSchema schema;          // of the first file, which the others follow
};

// Which row of its file example i is.
inline int64_t row_in_file(const Tensor& rows, int64_t i) {
  return rows.defined() ? rows[i].item<int64_t>() : i;
}

struct FeatureFileOptions {
  std::string label_column = "last";  // of a table without a file of labels: first, last, a name, a position
  at::ScalarType dtype = at::kFloat;  // of the features; float or double
  std::string group_column = {};      // of tables, named like the label column; empty = none
  bool labels_are_numbers = false;    // targets of a regression: need not be whole
  // Of tables, as CsvOptions has them, in words.
  std::vector<std::string> drop = {}, keep = {};
  std::string missing = "error";                               // error, mean, drop
  std::string separator = "auto";                              // auto, comma, semicolon, tab
  std::string decimal = "auto";                                // auto, point, comma
  std::string header = "auto";                                 // auto, yes, no
  std::function<void(const std::string& sentence)> note = {};  // told what was recognised or left out

  CsvOptions table_options() const;  // without columns
};

// One whole number per example, from any of the formats; or any number, in double precision. Of text also
// names, one a line: positions in `names`, which is filled where it is empty. Without a place for names they
// are an error.
Tensor read_labels(const std::string& path, bool any_number = false,
                   std::vector<std::string>* names = nullptr);

// Files that belong together: the same number of columns, all sparse or all dense. The columns of tables with
// headers are matched by name. Bytes are scaled to [0, 1], everything else is taken as it is, and the two are
// not mixed. Throws std::runtime_error naming the file, where in it, what was
// expected and what was found: a file that is damaged, a number that is not finite, labels that are missing
// or of another number than the examples.
std::vector<LabelledFeatures> read_labelled_files(const std::vector<LabelledFile>& files,
                                                  const FeatureFileOptions& options = {});

// New examples for a model that was fitted to files of this schema; labels are there if the file has them.
// Throws as above, naming the column that does not fit.
LabelledFeatures read_new_examples(const std::string& path, const TableSchema& schema,
                                   const FeatureFileOptions& options = {});

}  // namespace bilevel
