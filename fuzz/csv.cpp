// Tables as text, with the options that change how a line is taken apart, and the schema that one leaves for
// others: what it was made from must fit it.
#include "bilevel/data/csv.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int read_with(const std::string& path, CsvOptions options) {
  return taken_file(path, [&](const auto& file) {
    const CsvTable table = read_csv(file, options);
    require(table.values.isfinite().all().template item<bool>(), "CSV: a value that is not finite");
    require(table.values.size(1) == table.schema.features(), "CSV: features that the schema does not have");
    require(!table.labels.defined() || table.labels.numel() == table.values.size(0), "CSV: lost labels");
    const TableSchema schema = schema_of(
        nlohmann::ordered_json::parse(
            schema_json(table.schema).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)),
        file);
    require(schema.features() == table.schema.features(), "CSV: another schema after JSON");
    options.like = &table.schema;
    const CsvTable again = read_csv(file, options);
    require(again.values.equal(table.values), "CSV: other values by its own schema");
  });
}

int give_csv(std::string_view bytes) {
  const std::string path = path_of(bytes);
  return read_with(path, {}) + read_with(path, {.label_column = "last", .dtype = at::kFloat}) +
         read_with(path, {.separator = '\t', .header = CsvHeader::present, .label_column = "1"}) +
         read_with(path, {.label_column = "first", .missing = "mean"}) +
         read_with(path, {.decimal = ',', .group_column = "0", .missing = "drop"});
}

const Register csv_target("csv", give_csv);

}  // namespace
}  // namespace bilevel::fuzz
