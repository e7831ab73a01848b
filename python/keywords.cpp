#include "python/keywords.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <regex>
#include <vector>

#include "bilevel/fields/option_text.h"

namespace bilevel::python {
namespace {

using Words = std::vector<std::string>;

[[noreturn]] void type_error(const std::string& text) { throw py::type_error(text); }

const char* expected(const Field& field) {
  switch (field.type) {
    case FieldType::flag:
      return "True or False";
    case FieldType::whole:
    case FieldType::seed:
      return "a whole number";
    case FieldType::number:
      return "a number";
    case FieldType::text:
      break;
  }
  return "a string";
}

[[noreturn]] void wrong_type(const Field& field, const py::handle& value) {
  type_error(fmt::format("{} must be {}{}, not {}", field.name, field.is_list ? "a list, each " : "",
                         expected(field), Py_TYPE(value.ptr())->tp_name));
}

// An int, or what says that it is one, as numpy's whole numbers do; not a bool.
bool is_whole(const py::handle& value) { return !PyBool_Check(value.ptr()) && PyIndex_Check(value.ptr()); }

std::string whole_word(const py::handle& value) {
  const auto whole = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!whole) throw py::error_already_set();
  return py::str(whole).cast<std::string>();
}

// A float or what turns into one: numpy's, a tensor of one element.
bool is_number(const py::handle& value) {
  if (PyBool_Check(value.ptr()) || PyUnicode_Check(value.ptr())) return false;
  const PyNumberMethods* number = Py_TYPE(value.ptr())->tp_as_number;
  return PyFloat_Check(value.ptr()) || (number != nullptr && number->nb_float != nullptr);
}

std::string number_word(const py::handle& value) {
  if (PyLong_Check(value.ptr()) != 0) return whole_word(value);
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return std::isfinite(number) ? word_of(number) : py::str(py::float_(number)).cast<std::string>();
}

std::string flag_word(const Field& field, const py::handle& value) {
  const bool numpy_bool = std::string(Py_TYPE(value.ptr())->tp_name).starts_with("numpy.bool");
  if (!PyBool_Check(value.ptr()) && !numpy_bool) wrong_type(field, value);
  return PyObject_IsTrue(value.ptr()) == 1 ? "true" : "false";
}

std::string text_word(const Field& field, const py::handle& value) {
  if (PyUnicode_Check(value.ptr())) return value.cast<std::string>();
  if (is_whole(value) || PyFloat_Check(value.ptr())) return number_word(value);  // "auto or a number"
  const auto path = py::reinterpret_steal<py::object>(PyOS_FSPath(value.ptr()));
  if (path && PyUnicode_Check(path.ptr())) return path.cast<std::string>();
  PyErr_Clear();
  wrong_type(field, value);
}

std::string word(const Field& field, const py::handle& value) {
  switch (field.type) {
    case FieldType::flag:
      return flag_word(field, value);
    case FieldType::whole:
    case FieldType::seed:
      if (!is_whole(value)) wrong_type(field, value);
      return whole_word(value);
    case FieldType::number:
      if (!is_number(value)) wrong_type(field, value);
      return number_word(value);
    case FieldType::text:
      break;
  }
  return text_word(field, value);
}

bool is_several(const py::handle& value) {
  return !PyUnicode_Check(value.ptr()) &&
         (PySequence_Check(value.ptr()) != 0 || PyAnySet_Check(value.ptr())) && !PyBytes_Check(value.ptr());
}

// A list of seeds is one word in the table: "0-2" or "0,3,7".
std::string seeds_word(const Field& field, const py::handle& value) {
  Words all;
  for (const py::handle& one : py::reinterpret_borrow<py::iterable>(value)) {
    if (!is_whole(one)) wrong_type(field, one);
    all.push_back(whole_word(one));
  }
  return all.size() == 1 ? all.front() + "-" + all.front() : fmt::format("{}", fmt::join(all, ","));
}

Words words(const Field& field, const py::handle& value) {
  if (!field.is_list) {
    if (field.type == FieldType::text && is_several(value)) return {seeds_word(field, value)};
    return {word(field, value)};
  }
  if (!is_several(value)) return {word(field, value)};
  Words all;
  for (const py::handle& one : py::reinterpret_borrow<py::iterable>(value)) all.push_back(word(field, one));
  return all;
}

py::object value_of(const Field& field, const std::string& word) {
  switch (field.type) {
    case FieldType::flag:
      return py::bool_(word == "true");
    case FieldType::whole:
    case FieldType::seed:
      return py::module_::import("builtins").attr("int")(word);
    case FieldType::number:
      return py::module_::import("builtins").attr("float")(word);
    case FieldType::text:
      break;
  }
  return py::str(word);
}

py::object default_of(const OptionsView& options, const Field& field) {
  const Words all = options.words(field);
  if (field.is_list) {
    py::list values;
    for (const std::string& one : all) values.append(value_of(field, one));
    return values;
  }
  if (all.empty() || (all.front().empty() && field.type == FieldType::text)) return py::none();
  return value_of(field, all.front());
}

const char* name_of(FieldType type) {
  switch (type) {
    case FieldType::flag:
      return "bool";
    case FieldType::whole:
    case FieldType::seed:
      return "int";
    case FieldType::number:
      return "float";
    case FieldType::text:
      break;
  }
  return "str";
}

const char* name_of(FieldKind kind) {
  if (kind == FieldKind::result) return "result";
  return kind == FieldKind::place ? "place" : "process";
}

// The nearest of the names, by Python's own measure; empty where none is near.
std::string nearest(const std::string& typed, const Words& names) {
  const py::list near = py::module_::import("difflib").attr("get_close_matches")(typed, names, 1);
  return near.empty() ? "" : near[0].cast<std::string>();
}

}  // namespace

void give_keywords(OptionsView options, const char* function, const py::dict& keywords,
                   std::initializer_list<const char*> also) {
  for (const auto& [key, value] : keywords) {
    const auto name = key.cast<std::string>();
    const Field* field = options.find(name);
    if (field == nullptr) {
      Words names(also.begin(), also.end());
      for (const Field& known : options.fields()) names.push_back(known.name);
      const std::string near = nearest(name, names);
      type_error(fmt::format("{}() got an unexpected keyword argument '{}'{}", function, name,
                             near.empty() ? fmt::format("; help(bilevel.{}) shows all", function)
                                          : fmt::format("; did you mean '{}'?", near)));
    }
    if (!value.is_none()) options.give(*field, words(*field, value));
  }
}

py::list described(const OptionsView& options) {
  py::list all;
  for (const Field& field : options.fields()) {
    py::dict row;
    row["name"] = field.name;
    row["help"] = python_text(field.help);
    row["group"] = python_text(field.group);
    row["type"] = name_of(field.type);
    row["is_list"] = field.is_list;
    row["is_required"] = field.is_required;
    row["kind"] = name_of(field.kind);
    row["is_common"] = field.tier == FieldTier::common;
    const bool number = field.type == FieldType::whole || field.type == FieldType::number;
    row["range"] = number ? field.range.text(field.type == FieldType::whole) : "";
    row["choices"] = field.choices;
    row["default"] = field.shows_default ? default_of(options, field) : py::none();
    row["owner"] = field.owner;
    all.append(row);
  }
  return all;
}

std::string python_text(const std::string& marked) {
  // Some messages are written for a command line.
  static const std::regex flag("(^|[ (`])--([a-z][a-z0-9]*(-[a-z0-9]+)*)( ([0-9][0-9.e+-]*))?");
  const std::string plain = plain_text(marked);
  std::string text;
  auto begin = plain.cbegin();
  for (std::sregex_iterator it(plain.begin(), plain.end(), flag), end; it != end; ++it) {
    const std::smatch& found = *it;
    text.append(begin, found[0].first);
    text += found[1].str() + field_name(found[2]);
    std::string value = found[5];
    std::string after;
    if (value.ends_with('.')) {  // the sentence's
      value.pop_back();
      after = ".";
    }
    if (!value.empty()) text += " = " + value;
    text += after;
    begin = found[0].second;
  }
  return text.append(begin, plain.cend());
}

py::object to_python(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return py::bool_(json.get<bool>());
    case Json::value_t::number_integer:
      return py::int_(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      return py::int_(json.get<uint64_t>());
    case Json::value_t::number_float:
      return py::float_(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      // Names of files may hold bytes that are no UTF-8.
      return py::reinterpret_steal<py::object>(
          PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
    }
    case Json::value_t::array: {
      py::list list;
      for (const Json& one : json) list.append(to_python(one));
      return list;
    }
    case Json::value_t::object: {
      py::dict dict;
      for (const auto& [name, value] : json.items()) dict[py::str(name)] = to_python(value);
      return dict;
    }
    default:
      return py::none();
  }
}

}  // namespace bilevel::python
