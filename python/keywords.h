#pragma once
// Keyword arguments from field tables: what a command line has as --inner-rate 0.1 is inner_rate=0.1 here,
// with the same names, bounds and words in errors.

#include <torch/csrc/utils/pybind.h>

#include <initializer_list>
#include <string>

#include "bilevel/fields/options_view.h"
#include "bilevel/run/json.h"

namespace bilevel::python {

namespace py = pybind11;

// Gives the fields that keywords name; None leaves a field at its default. Throws TypeError for a keyword
// that is no field, with the nearest that is, and for a value of the wrong type; OptionError for one out of
// bounds. `also`: names that the function takes beside the table's.
void give_keywords(OptionsView options, const char* function, const py::dict& keywords,
                   std::initializer_list<const char*> also = {});

// A table as a list of dicts, one for each field, with the defaults that `options` hold.
py::list described(const OptionsView& options);

py::object to_python(const Json& json);

// A message of the library with Python's names: inner_rate where a command line has --inner-rate.
std::string python_text(const std::string& marked);

}  // namespace bilevel::python
