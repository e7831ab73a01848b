// Tables of numbers as text, with the options that change how a line is taken apart.
#include "bilevel/data/csv.h"

#include <ATen/ATen.h>

#include "fuzz/target.h"

namespace bilevel::fuzz {
namespace {

int read_with(const std::string& path, const CsvOptions& options) {
  return taken_file(path, [&](const auto& file) {
    const CsvTable table = read_csv(file, options);
    require(table.values.isfinite().all().template item<bool>(), "CSV: a value that is not finite");
    require(!table.labels.defined() || table.labels.numel() == table.values.size(0), "CSV: lost labels");
  });
}

int read(std::string_view bytes) {
  const std::string path = path_of(bytes);
  return read_with(path, {}) + read_with(path, {.label_column = "last", .dtype = at::kFloat}) +
         read_with(path, {.separator = '\t', .header = CsvHeader::present, .label_column = "1"});
}

const Register target("csv", read);

}  // namespace
}  // namespace bilevel::fuzz
