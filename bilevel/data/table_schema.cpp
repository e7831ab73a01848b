#include "bilevel/data/table_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>

namespace bilevel {
namespace {

using SchemaJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> form_names{"table", "array", "sparse"};
constexpr int64_t most_features = int64_t{1} << 31;

class SchemaReader {
 public:
  SchemaReader(const SchemaJson& json, std::string what) : json_(json), what_(std::move(what)) {
    if (!json.is_object()) fail("an object");
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw std::runtime_error(
        fmt::format("{}: expected {} in the model's schema; the file is damaged, or of another version",
                    what_, expected));
  }
  const SchemaJson& at(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) fail(fmt::format("\"{}\"", name));
    return *found;
  }
  std::string text(const char* name) const {
    if (!at(name).is_string()) fail(fmt::format("a text as \"{}\"", name));
    return at(name).get<std::string>();
  }
  bool flag(const char* name) const {
    if (!at(name).is_boolean()) fail(fmt::format("true or false as \"{}\"", name));
    return at(name).get<bool>();
  }
  int64_t whole(const char* name, int64_t least) const {
    if (!at(name).is_number_integer()) fail(fmt::format("a whole number as \"{}\"", name));
    const auto value = at(name).get<int64_t>();
    if (value < least || value > most_features) fail(fmt::format("{} or more as \"{}\"", least, name));
    return value;
  }
  std::vector<std::string> texts(const char* name) const {
    return list<std::string>(name, [](const SchemaJson& one) { return one.is_string(); });
  }
  std::vector<double> numbers(const char* name) const {
    return list<double>(name, [](const SchemaJson& one) { return one.is_number(); });
  }
  std::vector<int64_t> wholes(const char* name) const {
    return list<int64_t>(name, [](const SchemaJson& one) {
      return one.is_number_integer() && one.get<int64_t>() >= 1 && one.get<int64_t>() <= (1 << 20);
    });
  }

 private:
  template <typename T, typename Is>
  std::vector<T> list(const char* name, Is is) const {
    if (!at(name).is_array()) fail(fmt::format("a list as \"{}\"", name));
    std::vector<T> values;
    for (const SchemaJson& one : at(name)) {
      if (!is(one)) fail(fmt::format("another kind of value in \"{}\"", name));
      values.push_back(one.get<T>());
    }
    return values;
  }
  const SchemaJson& json_;
  std::string what_;
};

SchemaColumn column_of(const SchemaJson& json, const std::string& what) {
  const SchemaReader reader(json, what);
  SchemaColumn column;
  column.name = reader.text("name");
  column.place = reader.whole("place", 0);
  if (json.contains("categories")) {
    column.categories = reader.texts("categories");
    if (column.categories.empty()) reader.fail("categories of a column of text");
    if (!std::is_sorted(column.categories.begin(), column.categories.end())) reader.fail("sorted categories");
  }
  column.means = reader.numbers("means");
  if (static_cast<int64_t>(column.means.size()) != column.features()) reader.fail("a mean for every feature");
  return column;
}

}  // namespace

int64_t TableSchema::features() const {
  if (form != Form::table) return width_of_array;
  int64_t count = 0;
  for (const SchemaColumn& column : columns) count += column.features();
  return count;
}

std::vector<std::string> TableSchema::feature_names() const {
  std::vector<std::string> names;
  for (const SchemaColumn& column : columns) {
    if (column.categories.empty()) names.push_back(column.name);
    for (const std::string& category : column.categories) {
      names.push_back(fmt::format("{}={}", column.name, category));
    }
  }
  return names;
}

SchemaJson schema_json(const TableSchema& schema) {
  SchemaJson json = {{"form", form_names.at(static_cast<size_t>(schema.form))}, {"file", schema.file}};
  if (schema.form == TableSchema::Form::table) {
    json["header"] = schema.has_header;
    json["width"] = schema.width;
    json["columns"] = SchemaJson::array();
    for (const SchemaColumn& column : schema.columns) {
      SchemaJson one = {{"name", column.name}, {"place", column.place}};
      if (!column.categories.empty()) one["categories"] = column.categories;
      one["means"] = column.means;
      json["columns"].push_back(one);
    }
    json["label"] = schema.label;
    json["label_place"] = schema.label_place;
    json["group"] = schema.group;
    json["group_place"] = schema.group_place;
    json["dropped"] = schema.dropped;
    json["missing"] = schema.missing;
  } else {
    json["features"] = schema.width_of_array;
    json["first_index"] = schema.first_index;
    json["bytes"] = schema.is_bytes;
    json["image"] = schema.image;
  }
  json["label_names"] = schema.label_names;
  json["group_names"] = schema.group_names;
  return json;
}

TableSchema schema_of(const SchemaJson& json, const std::string& what) {
  const SchemaReader reader(json, what);
  TableSchema schema;
  const std::string form = reader.text("form");
  const auto found = std::find(form_names.begin(), form_names.end(), form);
  if (found == form_names.end()) reader.fail("table, array or sparse as \"form\"");
  schema.form = static_cast<TableSchema::Form>(found - form_names.begin());
  schema.file = reader.text("file");
  if (schema.form == TableSchema::Form::table) {
    schema.has_header = reader.flag("header");
    schema.width = reader.whole("width", 1);
    if (!reader.at("columns").is_array()) reader.fail("a list as \"columns\"");
    std::set<int64_t> places;
    for (const SchemaJson& one : reader.at("columns")) {
      schema.columns.push_back(column_of(one, what));
      const int64_t place = schema.columns.back().place;
      if (place >= schema.width || !places.insert(place).second)
        reader.fail("columns at places of their own");
    }
    schema.label = reader.text("label");
    schema.label_place = reader.whole("label_place", -1);
    schema.group = reader.text("group");
    schema.group_place = reader.whole("group_place", -1);
    schema.dropped = reader.texts("dropped");
    schema.missing = reader.text("missing");
    if (schema.missing != "error" && schema.missing != "mean" && schema.missing != "drop") {
      reader.fail("error, mean or drop as \"missing\"");
    }
    for (const int64_t place : {schema.label_place, schema.group_place}) {
      if (place >= schema.width || places.count(place) > 0) reader.fail("columns at places of their own");
    }
  } else {
    schema.width_of_array = reader.whole("features", 1);
    schema.first_index = reader.whole("first_index", 0);
    if (schema.first_index > 1) reader.fail("0 or 1 as \"first_index\"");
    schema.is_bytes = reader.flag("bytes");
    schema.image = reader.wholes("image");
  }
  schema.label_names = reader.texts("label_names");
  schema.group_names = reader.texts("group_names");
  return schema;
}

}  // namespace bilevel
