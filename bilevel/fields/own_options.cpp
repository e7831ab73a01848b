#include "bilevel/fields/own_options.h"

#include <algorithm>

namespace bilevel {

bool OwnOptions::has(const std::string& field) const {
  return std::any_of(fields_.begin(), fields_.end(), [&](const Field& f) { return f.name == field; });
}

std::vector<std::string> OwnOptions::default_words(const Field& field) const {
  const std::shared_ptr<void> defaults = fresh_();
  return field.words(field.member(defaults.get()));
}

std::shared_ptr<const void> OwnOptions::with(const NamedWords& given) const {
  const std::shared_ptr<void> options = fresh_();
  for (const auto& [name, words] : given) find_field(fields_, name).give(words, options.get());
  return options;
}

}  // namespace bilevel
