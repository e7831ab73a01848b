#pragma once
// Tables as text, plain or compressed: one example a row, one column for the class labels if there is one,
// one perhaps for groups, and the rest features: numbers, or text that becomes one feature per category.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/table_schema.h"

namespace bilevel {

enum class CsvHeader { automatic, present, absent };

struct CsvOptions {
  char separator = '\0';  // 0: recognised, a comma, a semicolon or a tab
  char decimal = '\0';    // 0: recognised, a point or a comma
  // automatic: the first row is a header when none of its fields is a number, or when those that are count
  // the columns (0, 1, 2, as pandas writes them); a row that could be either is an error, because a wrong
  // guess would lose an example without a word.
  CsvHeader header = CsvHeader::automatic;
  // Which column holds the class labels: empty for none, "first", "last", a name of the header, or a position
  // from 0.
  std::string label_column{};
  // And the one with the group of each example, named the same way.
  std::string group_column{};
  // Columns to pass over, by name or position. Columns that hold ids (csv_ids.h) are passed over too, and
  // noted, but for those to keep.
  std::vector<std::string> drop{}, keep{};
  // What a field without a value is: an error, the mean of the training rows, or a reason to drop the row.
  std::string missing = "error";
  // The schema of another table that belongs to this one. Where both have a header, columns are found by
  // their names, in whatever order they stand: a name that only one of the two has is an error. Otherwise
  // their places must do.
  const TableSchema* like = nullptr;
  bool labels_are_numbers = false;           // targets of a regression: need not be whole
  bool may_lack_label = false;               // new rows, whose classes are unknown; with a schema
  bool is_tsv = false;                       // tabs are the likelier separator
  at::ScalarType dtype = at::kDouble;        // of the values; float or double
  int64_t largest_bytes = int64_t{1} << 33;  // of the text; a bound on what a compressed file may unpack to
  void validate() const;                     // throws std::invalid_argument
};

// What one table holds, with how it was written, before its labels become those of an ExampleSet.
struct CsvTable {
  Tensor values;                   // rows x features, CPU
  Tensor labels;                   // int64: as written, or positions in schema.label_names; double where they
                                   // are numbers; or undefined
  Tensor groups;                   // the same, of schema.group_names
  Tensor rows;                     // int64: which rows of the file these are; undefined = all of them
  std::vector<std::string> names;  // of the features; empty where the table names no column
  TableSchema schema;              // made from this table, or the one that was given
  std::vector<std::string> notes;  // what was recognised or left out, a sentence each
};

// Fields may be quoted; empty lines, a byte order mark and \r\n are passed over. Throws std::runtime_error
// naming file, line and column for rows of different lengths, fields that are not what their column holds,
// and values that are missing, with their number and the first place.
CsvTable read_csv(const std::string& path, const CsvOptions& options = {});

}  // namespace bilevel
