#include "bilevel/fields/renamed.h"

#include <fmt/format.h>

#include <map>

#include "bilevel/fields/option_text.h"

namespace bilevel {

std::string current_field(const std::string& field) {
  static const std::map<std::string, std::string> names = {
      {"difference_mixed", "difference_cross"}, {"mixed", "cross"}, {"series_rate", "linear_rate"}};
  const auto found = names.find(field);
  return found == names.end() ? field : found->second;
}

std::string new_name_of(const std::string& field, const OptionsView& options) {
  const std::string now = current_field(field);
  if (now == field || options.find(now) == nullptr) return "";
  return fmt::format("; it is now called {}", named(now));
}

}  // namespace bilevel
