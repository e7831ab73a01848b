#pragma once
// Tables of numbers as text, plain or compressed: one example a row, one feature a column, and a column of
// class labels if there is one.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel {

enum class CsvHeader { automatic, present, absent };

struct CsvOptions {
  char separator = ',';
  // automatic: the first row is a header when none of its fields is a number; a mixed row is an error,
  // because a wrong guess would lose an example without a word.
  CsvHeader header = CsvHeader::automatic;
  // Which column holds the class labels: empty for none, "first", "last", a name of the header, or a position
  // from 0.
  std::string label_column{};
  // And which one says, as a whole number, what group an example belongs to; said in the same way.
  std::string group_column{};
  bool labels_are_numbers = false;  // targets of a regression: need not be whole
  // What the header of another table that belongs to this one has, and that table's name for messages. Where
  // this table has a header too, its columns are found by these names, in whatever order they stand: a name
  // that only one of the two has is an error. Without a header their places must do.
  struct Names {
    std::string table, label, group;
    std::vector<std::string> features;
  };
  Names like{};
  at::ScalarType dtype = at::kDouble;        // of the values; float or double
  int64_t largest_bytes = int64_t{1} << 33;  // of the text; a bound on what a compressed file may unpack to
  void validate() const;                     // throws std::invalid_argument
};

struct CsvTable {
  Tensor values;                       // rows x columns without labels and groups, CPU
  Tensor labels;                       // int64 as written, or double where they are numbers; or undefined
  Tensor groups;                       // int64 as written, or undefined
  std::vector<std::string> names;      // of the columns of `values`; empty without a header
  std::string label_name, group_name;  // in the header
};

// Fields may be quoted; empty lines are skipped. Throws std::runtime_error naming file, line and column for
// rows of different lengths, fields that are no finite number, labels that are no whole number; another
// separator, missing values and names in place of numbers are told apart (csv_diagnosis.h).
CsvTable read_csv(const std::string& path, const CsvOptions& options = {});

}  // namespace bilevel
