#pragma once
// The reader behind read_csv, in three files: the first row and what its columns are for (csv_first_row.cpp),
// the rows (csv_rows.cpp), and the table made of them (csv_result.cpp).
//
// A table is read in one pass where its columns are numbers. A column that turns out to hold text, or decimal
// commas, is read again as what it is: its earlier fields are gone by then.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/csv.h"
#include "bilevel/data/csv_dialect.h"
#include "bilevel/data/csv_text.h"
#include "bilevel/data/line_reader.h"

namespace bilevel {

struct CsvFileColumn {
  std::string name = {};  // in the header, else empty
  enum class Role { feature, label, group, passed_over } role = Role::feature;
  bool is_text = false;
  size_t at = 0;                   // of a feature of numbers: among those
  int64_t schema_place = -1;       // with a schema: which of its columns
  int64_t numbers = 0, texts = 0;  // fields of that kind
  int64_t truths = 0;              // True or False, where the training table has numbers
  int64_t first_text_line = 0;
  std::string first_text = {};
  CsvText text = {};
};

struct CsvPlace {
  int64_t count = 0, line = 0;
  size_t column = 0;
  std::string field = {};
};

class CsvReader {
 public:
  CsvReader(const std::string& path, const CsvOptions& options);

  CsvTable read();

 private:
  using Role = CsvFileColumn::Role;

  [[noreturn]] void fail(std::string_view expected, std::string_view found, std::string_view hint) const;

  // ---- a pass ----

  void read_pass();

  // ---- the first row ----

  void begin_columns();

  bool is_number(std::string_view field) const;

  // Looks at the second row where the first does not tell.
  bool is_header(const std::vector<std::string>& first);

  // The beginning of a table without numbers.
  bool has_only_text(const std::vector<std::string>& first);

  std::vector<std::string> second_row();

  void fail_if_separated_otherwise() const;

  void require_names() const;

  std::optional<size_t> place_of(const std::string& wanted) const;

  [[noreturn]] void no_such_column(const char* what, const std::string& wanted) const;

  // Which columns hold labels and groups, and which are passed over.
  void find_roles();

  // Where every column of the schema is in this table.
  void follow_schema();

  // By their places, as one of the two tables has no names. New rows may lack the label's column.
  void follow_places(const TableSchema& like);

  // Features of numbers lie in blocks, in the order that they will have.
  void place_numbers();

  // ---- rows ----

  std::string column_text(size_t i) const;

  // False: it is text or missing.
  bool parse(std::string_view field, double& value);

  // Looks like a number that cannot be read, so it is no category.
  static bool is_broken_number(std::string_view field);

  void note_missing(CsvPlace& place, size_t column, std::string_view field) const;

  void add_row();

  // Both return whether a value is missing.
  bool add_text(size_t i, std::string_view field);

  bool add_number(size_t i, std::string_view field, size_t row);

  // A field that is no number, in a column of numbers so far.
  void take_text(size_t i, std::string_view field);

  [[noreturn]] void fail_in_number(size_t i, std::string_view field) const;

  // ---- between passes ----

  bool wants_another_pass();

  void forget_pass();

  // Numbers such as 1,5 and none such as 1.5: commas are decimal ones, unless they may stand between
  // thousands.
  bool takes_comma() const;

  void require_values();

  // ---- the result ----

  CsvTable finish();

  bool has_text() const;

  std::string name_of(size_t i) const;

  Tensor joined_blocks();

  // A different value in every row of a column that is called like an id, or different texts in a long table.
  void leave_out_ids(std::vector<std::string>& notes);

  bool holds_ids(size_t i) const;

  void require_categories(size_t i) const;

  void begin_schema(TableSchema& schema) const;

  // Numbers as they are, text as one column of zeros and ones per category; what is missing is NaN.
  Tensor join_features(const TableSchema& schema, std::vector<std::string>& notes);

  void note_unknown(const CsvFileColumn& column, const Tensor& codes, const Tensor& written, size_t i,
                    std::vector<std::string>& notes) const;

  void drop_rows(CsvTable& table) const;

  void take_means(const Tensor& values, TableSchema& schema) const;

  void fill_means(CsvTable& table, const TableSchema& schema) const;

  void note_dialect(std::vector<std::string>& notes) const;
  void note_truths(std::vector<std::string>& notes) const;

  // About 8 MiB a block, as joining blocks at the end takes less memory than growing one array, but no more
  // rows than the file has room for: a field and what ends it take two bytes.
  size_t rows_a_block() const;

  std::string path_;
  CsvOptions options_;
  CsvDialect dialect_;
  std::unique_ptr<LineReader> lines_;
  std::string_view line_;  // the one that fields_ are of
  const std::vector<std::string_view>* fields_ = nullptr;
  std::string decimal_;
  size_t width_ = 0, rows_ = 0, numbers_a_row_ = 0;
  bool has_header_ = false;
  bool has_points_ = false;     // numbers such as 1.5
  CsvPlace comma_;              // and such as 1,5
  bool has_fractions_ = false;  // of which one cannot be 1,500
  std::vector<CsvFileColumn> columns_;
  std::optional<size_t> label_, group_;
  std::vector<size_t> feature_order_;  // columns that are features, as the schema has them
  std::vector<Tensor> blocks_;
  Tensor numbers_;                     // the blocks as one
  std::vector<int64_t> dropped_rows_;  // that lack a value
  CsvPlace missing_, missing_labels_;
};

}  // namespace bilevel
