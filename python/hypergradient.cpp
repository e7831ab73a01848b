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

py::dict counts_to_python(const OracleCounts& c) {
  py::dict counts;
  counts["inner_gradient"] = c.inner_gradient;
  counts["outer_gradient"] = c.outer_gradient;
  counts["hessian"] = c.hessian;
  counts["cross"] = c.cross;
  counts["samples"] = c.samples;
  return counts;
}

py::object non_negative(double value) { return value < 0 ? py::object(py::none()) : py::float_(value); }

py::dict to_python(const InnerAndHypergradient& found, double seconds, const PointedProblem& point,
                   std::string_view method) {
  const Hypergradient& h = found.hypergradient;
  py::dict result;
  result["value"] = point.x_structure.shown(h.value);
  result["status"] = py::str(std::string(name_of(h.status)));
  result["method"] = py::str(std::string(method));
  result["outer_loss"] = h.outer_loss;
  result["w"] = point.w_structure.shown(found.inner.final.w);
  result["direct"] = point.x_structure.shown(h.direct);
  result["solution"] = point.w_structure.shown(h.solution);
  result["iterations"] = h.iterations;
  result["relative_residual"] = non_negative(h.relative_residual);
  result["inner_gradient_norm"] = non_negative(h.inner_gradient_norm);
  result["counts"] = counts_to_python(h.counts);
  result["inner_counts"] = counts_to_python(found.inner.counts);
  if (h.bound.kind != BoundKind::none) {
    result["bound"] = h.bound.value;
    result["bound_kind"] = py::str(std::string(name_of(h.bound.kind)));
  } else {
    result["bound"] = py::none();
    result["bound_kind"] = py::none();
  }
  if (!h.no_bound.empty()) result["no_bound"] = h.no_bound;
  result["bytes_kept"] = h.bytes_kept;
  result["seconds"] = h.seconds;
  result["inner_seconds"] = seconds - h.seconds;
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
