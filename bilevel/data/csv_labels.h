#pragma once
// Classes and groups of a table: whole numbers as they are written, or names.

#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/csv_text.h"
#include "bilevel/data/table_schema.h"

namespace bilevel {

struct CsvNames {
  const std::string& path;
  std::string what;    // label or group
  std::string column;  // in messages
  const CsvText& text;
  char decimal = '.';
  const TableSchema* like = nullptr;  // of the training table, whose names these are
  bool may_be_unknown = false;        // then a name that the schema does not have is -1
};

// Any finite numbers, in double precision; a missing one is NaN.
Tensor take_numbers(const CsvNames& from);

// int64, one per row: whole numbers as written where all are such, with `names` empty; else positions in
// `names`, sorted. With a schema, `names` is its list and stays. A missing one is 0, as its row will be
// dropped. Throws std::runtime_error naming file, line and column for fractions and for names that the schema
// does not have.
Tensor take_names(const CsvNames& from, std::vector<std::string>& names);

}  // namespace bilevel
