#pragma once
// An options value seen through its field table: read and written by names and words. Needs nlohmann-json
// where it is included.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/fields/fields.h"

namespace bilevel {

class OptionsView {
 public:
  // Options is a struct with `static const Fields<Options>& fields()` and a member `Given given`.
  template <typename Options>
  requires requires(Options& o) { o.given; }
  explicit OptionsView(Options& options)
      : fields_(&Options::fields().rows()), options_(&options), given_(&options.given) {}

  const std::vector<Field>& fields() const { return *fields_; }
  const Field* find(const std::string& name) const;  // null: there is none
  const Field& at(const std::string& name) const;    // throws std::invalid_argument
  std::vector<std::string> words(const Field& field) const;
  bool is_given(const Field& field) const;
  // Names of those about these examples that were given.
  std::vector<std::string> given_about(DataSource source) const;

  // Checked, read and marked as given. Throws std::invalid_argument that names the field.
  void give(const Field& field, const std::vector<std::string>& words);
  void forget(const Field& field);
  // What has another value than Options{} counts as given: for options that were filled in by C++ code.
  void mark_changed(const OptionsView& defaults);
  // What was given to another value of these options replaces what is here, which holds defaults.
  void take_given(const OptionsView& others);
  // Throws OptionError where a field that is required has no value.
  void require_all() const;

  using Json = nlohmann::ordered_json;
  // {"inner_rate": 0.1, ...}: the fields that were given, or all that have a value. Fields of the process are
  // left out.
  Json given_json() const;
  Json effective_json() const;

 private:
  Json json(const Field& field) const;
  const std::vector<Field>* fields_;
  void* options_;
  Given* given_;
};

// Names and words of a JSON object of options, {"inner_rate": 0.1} or, as they were stored once,
// {"--inner-rate": ["0.1"]}.
NamedWords words_of(const nlohmann::ordered_json& object);
std::string field_name(std::string option);  // "--inner-rate" -> "inner_rate"

// A flag that was stored by its opposite once, {"no_flip": "true"}, is {"flip": "false"}.
NamedWords with_flags_as_named(const OptionsView& options, NamedWords words);

// All of them, except for those that are given already. Throws std::invalid_argument that names a field that
// there is not.
void give_rest(OptionsView options, const NamedWords& words);

// Fields that were given and decide the result, but not as `stored` has them: a resumed run keeps its
// options. `effective` has what the run found by itself: a field that is given so is forgotten, and found
// again with all its digits.
std::vector<std::string> changed_fields(OptionsView options, const NamedWords& stored,
                                        const NamedWords& effective);

}  // namespace bilevel
