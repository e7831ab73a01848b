#include "bilevel/fields/options_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "bilevel/fields/option_text.h"
#include "bilevel/fields/renamed.h"

namespace bilevel {
namespace {

// 0.10 is 0.1.
bool same_values(const Field& field, const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const std::string& x, const std::string& y) {
    const bool numbers = field.type == FieldType::number;
    return x == y || (numbers && std::strtod(x.c_str(), nullptr) == std::strtod(y.c_str(), nullptr));
  });
}

}  // namespace

const Field* OptionsView::find(const std::string& name) const {
  const auto found =
      std::find_if(fields_->begin(), fields_->end(), [&](const Field& field) { return field.name == name; });
  return found == fields_->end() ? nullptr : &*found;
}

const Field& OptionsView::at(const std::string& name) const { return find_field(*fields_, name); }

std::vector<std::string> OptionsView::words(const Field& field) const {
  return field.words(field.member(options_));
}

bool OptionsView::is_given(const Field& field) const { return given_->has(field.member(options_)); }

std::vector<std::string> OptionsView::given_about(DataSource source) const {
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    if (field.source == source && is_given(field)) names.push_back(field.name);
  }
  return names;
}

void OptionsView::give(const Field& field, const std::vector<std::string>& words) {
  field.give(words, options_);
  given_->mark_at(field.member(options_));
}

void OptionsView::forget(const Field& field) { given_->forget_at(field.member(options_)); }

void OptionsView::mark_changed(const OptionsView& defaults) {
  for (const Field& field : *fields_) {
    if (words(field) != defaults.words(field)) given_->mark_at(field.member(options_));
  }
}

void OptionsView::take_given(const OptionsView& others) {
  for (const Field& field : *fields_) {
    if (!others.is_given(field)) continue;
    field.read(others.words(field), field.member(options_));
    given_->mark_at(field.member(options_));
  }
}

void OptionsView::require_all() const {
  for (const Field& field : *fields_) {
    const std::vector<std::string> all = words(field);
    if (field.is_required && (all.empty() || all.front().empty())) {
      throw OptionError(fmt::format("{} is required", named(field.name)));
    }
  }
}

OptionsView::Json OptionsView::json(const Field& field) const {
  const auto one = [&](const std::string& word) -> Json {
    switch (field.type) {
      case FieldType::flag:
        return word == "true";
      case FieldType::whole:
      case FieldType::seed:
      case FieldType::number:
        return Json::parse(word, nullptr, false);
      case FieldType::text:
        break;
    }
    return word;
  };
  const std::vector<std::string> all = words(field);
  if (!field.is_list) return one(all.front());
  Json list = Json::array();
  for (const std::string& word : all) list.push_back(one(word));
  return list;
}

OptionsView::Json OptionsView::given_json() const {
  Json object = Json::object();
  for (const Field& field : *fields_) {
    if (field.kind != FieldKind::process && is_given(field)) object[field.name] = json(field);
  }
  return object;
}

OptionsView::Json OptionsView::effective_json() const {
  Json object = Json::object();
  for (const Field& field : *fields_) {
    const std::vector<std::string> all = words(field);
    const bool says_something = !all.empty() && (field.is_list || !all.front().empty());
    if (field.kind != FieldKind::process && says_something) object[field.name] = json(field);
  }
  return object;
}

NamedWords words_of(const nlohmann::ordered_json& object) {
  using Json = nlohmann::ordered_json;
  if (!object.is_object()) throw std::invalid_argument("expected an object of options");
  const auto word = [](const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_float()) return word_of(value.get<double>());
    return value.dump();
  };
  NamedWords named;
  for (const auto& [name, value] : object.items()) {
    std::vector<std::string> words;
    if (value.is_array()) {
      for (const Json& one : value) words.push_back(word(one));
    } else if (!value.is_null()) {
      words.push_back(word(value));
    }
    named.emplace_back(field_name(name), words);
  }
  return named;
}

std::string field_name(std::string option) {
  if (option.starts_with("--")) option.erase(0, 2);
  std::replace(option.begin(), option.end(), '-', '_');
  return option;
}

NamedWords with_flags_as_named(const OptionsView& options, NamedWords words) {
  const std::string opposite = "no_";
  for (auto& [name, values] : words) {
    if (options.find(name) != nullptr || !name.starts_with(opposite)) continue;
    const Field* flag = options.find(name.substr(opposite.size()));
    if (flag == nullptr || flag->type != FieldType::flag) continue;
    name = flag->name;
    for (std::string& value : values) value = value == "true" ? "false" : "true";
  }
  return words;
}

void give_rest(OptionsView options, const NamedWords& words) {
  for (const auto& [name, values] : words) {
    const Field* field = options.find(name);
    if (field == nullptr) {
      throw OptionError(fmt::format("option {} is unknown{}", named(name), new_name_of(name, options)));
    }
    if (!values.empty() && !options.is_given(*field)) options.give(*field, values);
  }
}

std::vector<std::string> changed_fields(OptionsView options, const NamedWords& stored,
                                        const NamedWords& effective) {
  const auto is_in = [&](const NamedWords& words, const Field& field) {
    return std::any_of(words.begin(), words.end(), [&](const auto& named) {
      return named.first == field.name && same_values(field, named.second, options.words(field));
    });
  };
  std::vector<std::string> changed;
  for (const Field& field : options.fields()) {
    if (field.kind != FieldKind::result || !options.is_given(field) || is_in(stored, field)) continue;
    if (is_in(effective, field)) {
      options.forget(field);
    } else {
      changed.push_back(field.name);
    }
  }
  return changed;
}

}  // namespace bilevel
