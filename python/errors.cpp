// Exceptions of the library as Python's own types, with the same words: a mistake in an option is a
// ValueError, a run that cannot be resumed a RuntimeError, a file that is not there a FileNotFoundError.

#include <torch/csrc/utils/pybind.h>

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include "bilevel/core/errors.h"
#include "bilevel/data/file_error.h"
#include "bilevel/fields/option_text.h"
#include "python/keywords.h"
#include "python/module.h"

namespace bilevel::python {
namespace {

// Kept for the life of the interpreter, as pybind11's translators are.
struct Types {
  PyObject *option, *run, *not_finite;
};
Types& types() {
  static Types all{};
  return all;
}

PyObject* add_type(py::module_& m, const char* name, PyObject* base, const char* text) {
  const std::string full = std::string("bilevel.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), text, base, nullptr);
  if (type == nullptr) throw py::error_already_set();
  m.attr(name) = py::reinterpret_borrow<py::object>(type);
  return type;
}

// With Python's names.
void raise(PyObject* type, const std::exception& error) {
  PyErr_SetString(type, python_text(marked_message(error)).c_str());
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const py::builtin_exception&) {
    throw;  // pybind11's own TypeError and the like
  } catch (python_error& e) {
    // Raised by a user's backward, which PyTorch called for us: type, value and traceback are still there.
    if (!PyErr_Occurred()) e.restore();
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (const MissingFileError& e) {
    raise(PyExc_FileNotFoundError, e);
  } catch (const OptionError& e) {
    raise(types().option, e);
  } catch (const NotFiniteError& e) {
    raise(types().not_finite, e);
  } catch (const RunError& e) {
    raise(types().run, e);
  } catch (const c10::Error& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  } catch (const std::filesystem::filesystem_error& e) {
    raise(e.code() == std::errc::no_such_file_or_directory ? PyExc_FileNotFoundError : PyExc_OSError, e);
  } catch (const std::invalid_argument& e) {
    raise(PyExc_ValueError, e);
  } catch (const std::runtime_error& e) {
    raise(PyExc_RuntimeError, e);
  }
}

}  // namespace

py::handle not_finite_type() { return types().not_finite; }

void add_errors(py::module_& m) {
  types().option = add_type(m, "OptionError", PyExc_ValueError,
                            "A mistake in an option: its name, its value and the bound.");
  types().run = add_type(m, "RunError", PyExc_RuntimeError, "A run that cannot be started or resumed.");
  types().not_finite = add_type(m, "NotFiniteError", PyExc_RuntimeError,
                                "The mathematics left the finite numbers: where, and what to change.");
  py::register_exception_translator(&translate);
}

}  // namespace bilevel::python
