#include "bilevel/data/csv.h"

#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/core/require.h"
#include "bilevel/data/csv_reader.h"

namespace bilevel {

void CsvOptions::validate() const {
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw std::invalid_argument(fmt::format("csv: dtype = {}: must be float or double", at::toString(dtype)));
  }
  if (separator == '"' || separator == '\n' || separator == '.') {
    throw std::invalid_argument("csv: separator must not be a quote, a line's end or a point");
  }
  if (decimal != '\0' && decimal != '.' && decimal != ',') {
    throw std::invalid_argument("csv: decimal must be a point or a comma");
  }
  if (missing != "error" && missing != "mean" && missing != "drop") {
    throw std::invalid_argument(fmt::format("missing = {}: must be error, mean or drop", missing));
  }
  require_at_least("csv: largest_bytes", largest_bytes, 1);
}

CsvTable read_csv(const std::string& path, const CsvOptions& options) {
  options.validate();
  return CsvReader(path, options).read();
}

}  // namespace bilevel
