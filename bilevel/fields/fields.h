#pragma once
// The field table of an options struct: one row per option, from which come its flag, its line of help, its
// place in configuration files and config.json, the comparison when a run is resumed, and its name in errors.
//
//     const Fields<CleanOptions>& CleanOptions::fields() {
//       static const Fields<CleanOptions> table = [] {
//         Fields<CleanOptions> f;
//         f.add("threshold", [](auto& o) -> auto& { return o.threshold; }, "flag labels below this weight")
//             .in(at_least(0));
//         return f;
//       }();
//       return table;
//     }
//
// A field has the name that people in the field use, in small letters with underscores.

#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bilevel/fields/codec.h"
#include "bilevel/fields/given.h"
#include "bilevel/fields/range.h"

namespace bilevel {

// Fields by name, with the words of their values.
using NamedWords = std::vector<std::pair<std::string, std::vector<std::string>>>;

enum class FieldKind {
  result,   // decides what comes out: a resumed run keeps it
  place,    // says where the work or its data is: may change when a run is resumed
  process,  // of this process alone: not stored
};

enum class FieldTier {
  common,  // most used: in the short help
  more,    // in the whole help
};

// Which examples a field is about, in a job that takes them from one of two places.
enum class DataSource { any, own_files, named_set };

struct Field {
  std::string name, help;
  std::string group = {};  // a heading of the help, and nothing else
  DataSource source = DataSource::any;
  FieldType type = FieldType::text;
  bool is_list = false;
  bool is_repeated = false;  // a list whose values may hold commas: each is given by itself
  bool is_required = false;
  FieldKind kind = FieldKind::result;
  FieldTier tier = FieldTier::more;
  Range range = {};
  std::vector<std::string> choices = {};
  bool shows_default = true;     // false: the default is a rule on other fields, which the help tells
  std::string environment = {};  // an environment variable that supplies its default
  std::string owner = {};        // the one choice that reads it (a problem, a method); empty: not only one

  std::function<void*(void*)> member = {};  // of the options
  std::function<std::vector<std::string>(const void*)> words = {};
  std::function<void(const std::vector<std::string>&, void*)> read = {};

  Field& in(Range r) { return range = r, *this; }
  Field& one_of(std::vector<std::string> names) { return choices = std::move(names), *this; }
  Field& by_rule() { return shows_default = false, *this; }
  Field& is(FieldKind k) { return kind = k, *this; }
  Field& of(std::string choice) { return owner = std::move(choice), *this; }
  Field& repeated() { return is_repeated = true, *this; }
  Field& required() { return is_required = true, *this; }
  Field& first() { return tier = FieldTier::common, *this; }
  Field& from_environment(std::string variable) { return environment = std::move(variable), *this; }

  // Takes help, bounds and choices of another field of the same meaning.
  void like(const Field& other) {
    help = other.help;
    range = other.range;
    choices = other.choices;
    shows_default = other.shows_default;
    tier = other.tier;
  }

  // Throws OptionError: "inner_rate = 0: must be above 0".
  void require(const std::vector<std::string>& values) const;
  // Into the member of an options value, once they are checked.
  void give(const std::vector<std::string>& values, void* options) const;
};

template <typename Options>
class Fields {
 public:
  // The rows that are added from here on stand under this heading, and are about these examples.
  void heading(std::string group, DataSource source = DataSource::any) {
    group_ = std::move(group);
    source_ = source;
  }

  template <typename Member>
  Field& add(std::string name, Member member, std::string help) {
    using Value = std::remove_reference_t<std::invoke_result_t<Member, Options&>>;
    using Codec = FieldCodec<Value>;
    Field field{.name = std::move(name), .help = std::move(help), .group = group_, .source = source_};
    field.type = Codec::type;
    field.is_list = Codec::is_list;
    field.member = [member](void* options) -> void* { return &member(*static_cast<Options*>(options)); };
    field.words = [](const void* value) { return Codec::words(*static_cast<const Value*>(value)); };
    field.read = [](const std::vector<std::string>& words, void* value) {
      Codec::read(words, *static_cast<Value*>(value));
    };
    rows_.push_back(std::move(field));
    return rows_.back();
  }

  // The rows of a struct that is a part of this one.
  template <typename Part, typename Member>
  void include(Member member, const Fields<Part>& fields) {
    for (Field field : fields.rows()) {
      field.member = [member, inside = std::move(field.member)](void* options) -> void* {
        return inside(&member(*static_cast<Options*>(options)));
      };
      rows_.push_back(std::move(field));
    }
  }

  // One of them.
  template <typename Part, typename Member>
  Field& include(Member member, const Fields<Part>& fields, const std::string& name);

  // All but some, for a struct that does not read every field of its part.
  Fields without(const std::vector<std::string>& names) const {
    Fields rest = *this;
    std::erase_if(rest.rows_, [&](const Field& field) {
      return std::find(names.begin(), names.end(), field.name) != names.end();
    });
    return rest;
  }

  const std::vector<Field>& rows() const { return rows_; }
  Field& row(const std::string& name);  // to change one that was included

 private:
  std::string group_;
  DataSource source_ = DataSource::any;
  std::vector<Field> rows_;
};

const Field& find_field(const std::vector<Field>& fields, const std::string& name);

template <typename Options>
template <typename Part, typename Member>
Field& Fields<Options>::include(Member member, const Fields<Part>& fields, const std::string& name) {
  Field field = find_field(fields.rows(), name);
  field.group = group_;
  field.member = [member, inside = std::move(field.member)](void* options) -> void* {
    return inside(&member(*static_cast<Options*>(options)));
  };
  rows_.push_back(std::move(field));
  return rows_.back();
}

template <typename Options>
Field& Fields<Options>::row(const std::string& name) {
  return const_cast<Field&>(find_field(rows_, name));
}

}  // namespace bilevel
