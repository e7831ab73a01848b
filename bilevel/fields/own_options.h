#pragma once
// The options that one choice among several takes, such as an estimator or an algorithm: its own struct, seen
// through the struct's field table by whoever knows the choice by name only.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/fields/fields.h"

namespace bilevel {

class OwnOptions {
 public:
  OwnOptions() = default;
  // Options is a struct with `static const Fields<Options>& fields()`. `without`: fields of the struct that
  // this choice does not read.
  template <typename Options>
  static OwnOptions of(const std::vector<std::string>& without = {}) {
    OwnOptions own;
    own.fields_ = Options::fields().without(without).rows();
    own.fresh_ = [] { return std::make_shared<Options>(); };
    return own;
  }

  // Each with its name, type, bounds, choices and help.
  const std::vector<Field>& fields() const { return fields_; }
  bool has(const std::string& field) const;
  std::vector<std::string> default_words(const Field& field) const;

  // An Options value with these fields given; the others have their defaults. Throws OptionError for a name
  // that is not among them and for a value out of its bounds.
  std::shared_ptr<const void> with(const NamedWords& given) const;

 private:
  std::vector<Field> fields_;
  std::function<std::shared_ptr<void>()> fresh_;
};

// Of a choice that has none.
struct NoOptions {
  static const Fields<NoOptions>& fields() {
    static const Fields<NoOptions> none;
    return none;
  }
};

}  // namespace bilevel
