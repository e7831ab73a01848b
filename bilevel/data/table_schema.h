#pragma once
// What the files of a job have in common: which columns become which features, and what classes and groups
// are called. Made from the training file, applied to every other one, and kept with the model as JSON, so
// that new rows meet the model in the form that it was fitted to.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace bilevel {

struct SchemaColumn {
  std::string name;                          // in the header; "column 3" without one
  int64_t place = 0;                         // in the training file, from 0
  std::vector<std::string> categories = {};  // of a column of text, sorted, a feature each; empty: numbers
  std::vector<double> means = {};  // of its features in the training rows: what a missing value becomes

  int64_t features() const { return categories.empty() ? 1 : static_cast<int64_t>(categories.size()); }
};

struct TableSchema {
  enum class Form { table, array, sparse };
  Form form = Form::table;
  std::string file = {};  // it was made from, for messages
  // Of a table.
  bool has_header = false;
  int64_t width = 0;  // columns of the file, whatever they hold
  std::vector<SchemaColumn> columns = {};
  std::string label = {}, group = {};          // their names in the header
  int64_t label_place = -1, group_place = -1;  // -1 = there is none
  std::vector<std::string> dropped = {};       // names of columns that are passed over
  std::string missing = "error";               // error, mean or drop
  // Of an array or a sparse file.
  int64_t width_of_array = 0;
  int64_t first_index = 1;          // of a sparse file: what its first column is called
  bool is_bytes = false;            // divided by 255
  std::vector<int64_t> image = {};  // the sizes of one example; empty = a plain row
  // Of all of them: what class k and group k are called; empty where they are whole numbers.
  std::vector<std::string> label_names = {}, group_names = {};

  int64_t features() const;
  std::vector<std::string> feature_names() const;  // of a table: "age", "colour=red"
};

nlohmann::ordered_json schema_json(const TableSchema& schema);
// Throws std::runtime_error beginning with `what` for JSON that is no schema.
TableSchema schema_of(const nlohmann::ordered_json& json, const std::string& what);

}  // namespace bilevel
