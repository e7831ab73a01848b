// One hypergradient at a point: bilevel.hypergradient().

#include <fmt/format.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/core/oracle.h"
#include "bilevel/hypergradients/estimator.h"
#include "python/doors.h"
#include "python/hypergradient_options.h"
#include "python/keywords.h"
#include "python/module.h"
#include "python/problem.h"

namespace bilevel::python {
namespace {

// The names of a result's fields, made once: a small problem's hypergradient takes a few microseconds, and a
// result has thirty names.
struct Names {
  static PyObject* made(const char* text) {
    PyObject* name = PyUnicode_InternFromString(text);
    if (name == nullptr) throw py::error_already_set();
    return name;
  }
  PyObject* value = made("value");
  PyObject* status = made("status");
  PyObject* method = made("method");
  PyObject* outer_loss = made("outer_loss");
  PyObject* w = made("w");
  PyObject* direct = made("direct");
  PyObject* solution = made("solution");
  PyObject* iterations = made("iterations");
  PyObject* relative_residual = made("relative_residual");
  PyObject* inner_gradient_norm = made("inner_gradient_norm");
  PyObject* counts = made("counts");
  PyObject* inner_counts = made("inner_counts");
  PyObject* bound = made("bound");
  PyObject* bound_kind = made("bound_kind");
  PyObject* no_bound = made("no_bound");
  PyObject* bytes_kept = made("bytes_kept");
  PyObject* seconds = made("seconds");
  PyObject* inner_seconds = made("inner_seconds");
  PyObject* inner_gradient = made("inner_gradient");
  PyObject* outer_gradient = made("outer_gradient");
  PyObject* hessian = made("hessian");
  PyObject* cross = made("cross");
  PyObject* samples = made("samples");
};
const Names& names() {
  static const Names all;  // kept for the life of the interpreter
  return all;
}

void put(const py::dict& dict, PyObject* name, const py::object& value) {
  if (PyDict_SetItem(dict.ptr(), name, value.ptr()) != 0) throw py::error_already_set();
}

py::object text(std::string_view words) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_FromStringAndSize(words.data(), static_cast<Py_ssize_t>(words.size())));
}

py::dict counts_to_python(const OracleCounts& c) {
  const Names& n = names();
  py::dict counts;
  put(counts, n.inner_gradient, py::int_(c.inner_gradient));
  put(counts, n.outer_gradient, py::int_(c.outer_gradient));
  put(counts, n.hessian, py::int_(c.hessian));
  put(counts, n.cross, py::int_(c.cross));
  put(counts, n.samples, py::int_(c.samples));
  return counts;
}

py::object non_negative(double value) { return value < 0 ? py::object(py::none()) : py::float_(value); }

py::dict to_python(const InnerAndHypergradient& found, double seconds, const PointedProblem& point,
                   std::string_view method) {
  const Hypergradient& h = found.hypergradient;
  const Names& n = names();
  const bool has_bound = h.bound.kind != BoundKind::none;
  py::dict result;
  put(result, n.value, point.x_structure.shown(h.value));
  put(result, n.status, text(name_of(h.status)));
  put(result, n.method, text(method));
  put(result, n.outer_loss, py::cast(h.outer_loss));
  put(result, n.w, point.w_structure.shown(found.inner.final.w));
  put(result, n.direct, point.x_structure.shown(h.direct));
  put(result, n.solution, point.w_structure.shown(h.solution));
  put(result, n.iterations, py::int_(h.iterations));
  put(result, n.relative_residual, non_negative(h.relative_residual));
  put(result, n.inner_gradient_norm, non_negative(h.inner_gradient_norm));
  put(result, n.counts, counts_to_python(h.counts));
  put(result, n.inner_counts, counts_to_python(found.inner.counts));
  put(result, n.bound, has_bound ? py::object(py::float_(h.bound.value)) : py::none());
  put(result, n.bound_kind, has_bound ? text(name_of(h.bound.kind)) : py::none());
  if (!h.no_bound.empty()) put(result, n.no_bound, text(h.no_bound));
  put(result, n.bytes_kept, py::int_(h.bytes_kept));
  put(result, n.seconds, py::float_(h.seconds));
  put(result, n.inner_seconds, py::float_(seconds - h.seconds));
  return result;
}

py::dict hypergradient(const py::object& problem, const py::object& x, const py::object& w,
                       const py::object& method, const py::dict& keywords) {
  const PointedProblem point = pointed(problem, x, w);
  HypergradientOptions options;
  const bool by_name = PyUnicode_Check(method.ptr());
  if (by_name) options.method = method.cast<std::string>();
  give_keywords(OptionsView(options), "hypergradient", keywords, {"problem", "x", "w"});
  std::shared_ptr<const HypergradientEstimator> estimator;
  if (by_name) {
    estimator = options.make();
  } else {
    estimator = estimator_from(method);
    options.check_own(*estimator);
  }
  InnerAndHypergradient found;
  double seconds = 0;
  {
    const py::gil_scoped_release unlocked;
    const auto begin = std::chrono::steady_clock::now();
    Oracle oracle(*point.problem);
    found = hypergradient_at(oracle, point.x, point.w, options.inner, *estimator, options.error_bound);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return to_python(found, seconds, point, estimator->name());
}

}  // namespace

void add_hypergradient(py::module_& m) {
  m.def("hypergradient", &hypergradient, py::arg("problem"), py::arg("x"), py::arg("w"), py::arg("method"),
        py::arg("options"));
}

}  // namespace bilevel::python
