#include "bilevel/fields/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/fields/option_text.h"

namespace bilevel {

void Field::require(const std::vector<std::string>& values) const {
  try {
    if (values.empty()) throw std::invalid_argument("needs a value");
    if (!is_list && values.size() > 1) throw std::invalid_argument("takes one value");
    for (const std::string& value : values) {
      if (type == FieldType::whole) require_whole(value, range);
      if (type == FieldType::seed) require_seed(value);
      if (type == FieldType::number) require_number(value, range);
      if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
        throw std::invalid_argument(fmt::format("choose from {}", fmt::join(choices, ", ")));
      }
    }
  } catch (const std::invalid_argument& error) {
    throw OptionError(
        fmt::format("{}: {}", named(name, fmt::format("{}", fmt::join(values, ","))), error.what()));
  }
}

void Field::give(const std::vector<std::string>& values, void* options) const {
  require(values);
  try {
    read(values, member(options));
  } catch (const std::invalid_argument& error) {
    throw OptionError(
        fmt::format("{}: {}", named(name, fmt::format("{}", fmt::join(values, ","))), error.what()));
  }
}

const Field& find_field(const std::vector<Field>& fields, const std::string& name) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
  if (found == fields.end()) throw OptionError(fmt::format("option {} is unknown", named(name)));
  return *found;
}

}  // namespace bilevel
