#include "python/problem.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bilevel/core/errors.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/compute.h"
#include "bilevel/jobs/problem_choice.h"
#include "bilevel/run/run_context.h"
#include "python/held.h"
#include "python/keywords.h"
#include "python/module.h"

namespace bilevel::python {
namespace {

Tensor rows_of(const Tensor& all, const Batch& batch) {
  return batch.is_full() ? all : all.index_select(0, batch.index.to(all.device()));
}

// The third argument of a loss.
py::object data_of(const PythonLoss& loss, const Batch& batch) {
  if (loss.data.is_none()) return batch_to_python(batch);
  if (THPVariable_Check(loss.data.ptr())) {
    return batch.is_full() ? loss.data : py::cast(rows_of(THPVariable_Unpack(loss.data.ptr()), batch));
  }
  if (PyTuple_Check(loss.data.ptr())) {
    if (batch.is_full()) return loss.data;
    py::list rows;
    for (const py::handle& one : loss.data)
      rows.append(py::cast(rows_of(THPVariable_Unpack(one.ptr()), batch)));
    return py::tuple(rows);
  }
  return loss.data(batch_to_python(batch));
}

// What a function may do wrong, by its own name.
Tensor checked_loss(const py::object& result, const PythonLoss& loss, const Tensor& w) {
  if (!THPVariable_Check(result.ptr())) {
    throw py::type_error(fmt::format(
        "{} must return a torch.Tensor with one element, but returned {}{}", loss.name,
        Py_TYPE(result.ptr())->tp_name,
        PyFloat_Check(result.ptr()) ? ": a number has no graph to differentiate; leave .item() out" : ""));
  }
  const Tensor& value = THPVariable_Unpack(result.ptr());
  if (value.layout() != at::kStrided) {
    throw std::invalid_argument(fmt::format("{} returned a tensor of layout {}: it must be dense", loss.name,
                                            py::str(result.attr("layout")).cast<std::string>()));
  }
  if (value.numel() != 1) {
    throw std::invalid_argument(
        fmt::format("{} must return a scalar, but returned a tensor of shape ({}): take its mean or sum",
                    loss.name, fmt::join(value.sizes().vec(), ", ")));
  }
  if (value.scalar_type() != w.scalar_type()) {
    throw std::invalid_argument(
        fmt::format("{} returned {}, but w is {}: convert the data, or precision is lost in silence",
                    loss.name, py::str(result.attr("dtype")).cast<std::string>(),
                    py::str(py::cast(w).attr("dtype")).cast<std::string>()));
  }
  if (value.device() != w.device()) {
    throw std::invalid_argument(
        fmt::format("{} returned a tensor on {}, but w is on {}: bring the data there", loss.name,
                    value.device().str(), w.device().str()));
  }
  // On a GPU the library looks once for many steps; a value for a record may be anything.
  if (value.device().is_cpu() && value.requires_grad()) {
    if (const double number = value.item<double>(); !std::isfinite(number)) {
      throw NotFiniteError(fmt::format(
          "{} returned {}: its input has |w| = {:g}; check the data, or lower inner_rate if w has run away",
          loss.name, number, w.detach().norm().item<double>()));
    }
  }
  return value;
}

}  // namespace

void add_note(const py::error_already_set& error, const std::string& note) {
  // Python 3.11 and later.
  if (py::hasattr(error.value(), "add_note")) error.value().attr("add_note")(note);
}

py::object batch_to_python(const Batch& batch) { return py::cast(batch); }

Tensor PythonProblem::call(const PythonLoss& loss, const Tensor& w, const Tensor& x,
                           const Batch& batch) const {
  const py::gil_scoped_acquire lock;
  try {
    const py::object x_shown = x_structure_.shown(x), w_shown = w_structure_.shown(w);
    const py::object result = loss.takes_batch ? loss.function(x_shown, w_shown, data_of(loss, batch))
                                               : loss.function(x_shown, w_shown);
    return checked_loss(result, loss, w);
  } catch (py::error_already_set& error) {
    add_note(error, fmt::format("raised in {}, which bilevel called", loss.name));
    throw;
  }
}

Tensor PythonProblem::inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return call(parts_->inner, w, x, batch);
}

Tensor PythonProblem::outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const {
  return call(parts_->outer, w, x, batch);
}

Tensor PythonProblem::initial_inner(uint64_t /*seed*/) const { return w_.clone(); }
Tensor PythonProblem::initial_outer(uint64_t /*seed*/) const { return x_.clone(); }

void PythonProblem::project_outer_(Tensor& x) const {
  const py::gil_scoped_acquire lock;
  if (parts_->project.is_none()) return;
  const at::NoGradGuard no_grad;
  const py::object projected = parts_->project(x_structure_.shown(x));
  x = x_structure_.flatten(projected, "what project() returned").clone();
}

std::map<std::string, double> PythonProblem::metrics(const Tensor& w, const Tensor& x) const {
  const py::gil_scoped_acquire lock;
  if (parts_->metrics.is_none()) return {};
  const at::NoGradGuard no_grad;
  const py::dict all = parts_->metrics(x_structure_.shown(x), w_structure_.shown(w));
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : all) {
    numbers[py::str(name).cast<std::string>()] = py::float_(py::reinterpret_borrow<py::object>(value));
  }
  return numbers;
}

// ---- problems known by name ----

namespace {

struct ProblemByNameOptions {
  ProblemChoice problem = {};
  ComputeOptions compute = {};
  Given given = {};
  static const Fields<ProblemByNameOptions>& fields() {
    static const Fields<ProblemByNameOptions> table = [] {
      using O = ProblemByNameOptions;
      Fields<O> f;
      f.include(
          [](O & o) -> auto& { return o.problem; }, ProblemChoice::fields());
      f.include(
          [](O & o) -> auto& { return o.compute; }, ComputeOptions::fields());
      return f;
    }();
    return table;
  }
};

struct ProblemByName {
  std::shared_ptr<const NamedProblem> named;
  uint64_t seed = 0;
  py::dict options;
};

ProblemByName problem_by_name(const py::dict& keywords) {
  ProblemByNameOptions o;
  const OptionsView view(o);
  give_keywords(view, "problem", keywords);
  o.problem.data.tensors = tensor_options(o.compute, RunContext());
  return {std::make_shared<const NamedProblem>(make_problem(view, o.problem, o.given)), o.problem.data.seed,
          keywords};
}

const ProblemByName* by_name(const py::object& problem) {
  return py::isinstance<ProblemByName>(problem) ? &problem.cast<const ProblemByName&>() : nullptr;
}

}  // namespace

PointedProblem pointed(const py::object& problem, const py::object& x, const py::object& w) {
  PointedProblem point;
  if (const ProblemByName* named = by_name(problem)) {
    point.problem = {named->named, named->named->problem.get()};
    point.x = x.is_none() ? point.problem->initial_outer(named->seed) : point.x_structure.flatten(x, "x");
    point.w = w.is_none() ? point.problem->initial_inner(named->seed) : point.w_structure.flatten(w, "w");
    return point;
  }
  const auto parts = problem.cast<std::shared_ptr<PythonProblemParts>>();
  if (x.is_none() || w.is_none()) {
    throw py::type_error(
        fmt::format("{} is missing: give it to the function or to the Problem", x.is_none() ? "x" : "w"));
  }
  point.x_structure = Structure::of(x, "x");
  point.w_structure = Structure::of(w, "w");
  point.x = point.x_structure.flatten(x, "x");
  point.w = point.w_structure.flatten(w, "w");
  point.problem =
      std::make_shared<PythonProblem>(parts, point.x_structure, point.w_structure, point.x, point.w);
  return point;
}

void add_problems(py::module_& m) {
  py::class_<Batch>(
      m, "Batch", "The examples that a loss is evaluated on, and the seed for all random operations on them.")
      .def_property_readonly(
          "index",
          [](const Batch& b) -> py::object {
            return b.is_full() ? py::object(py::none()) : py::cast(b.index);
          },
          "int64 positions on the CPU; None = all examples")
      .def_readonly("seed", &Batch::seed, "random seed for dropout, augmentation and noise")
      .def_property_readonly("is_full", &Batch::is_full)
      .def(
          "rows", [](const Batch& b, const Tensor& all) { return rows_of(all, b); }, py::arg("tensor"),
          "The batch's rows of a tensor.");
  py::class_<PythonLoss>(m, "_Loss")
      .def(py::init(
          [](py::object function, std::string name, bool takes_batch, py::object data, int64_t samples) {
            return PythonLoss{std::move(function), std::move(name), takes_batch, std::move(data), samples};
          }));
  py::class_<PythonProblemParts, std::shared_ptr<PythonProblemParts>>(m, "_Functions")
      .def(py::init([](const PythonLoss& inner, const PythonLoss& outer, py::object metrics,
                       py::object project, bool inner_uses_outer) {
        return held(
            PythonProblemParts{inner, outer, std::move(metrics), std::move(project), inner_uses_outer});
      }));
  py::class_<ProblemByName>(m, "ProblemByName", "A problem that the library knows by name.")
      .def_property_readonly("name", [](const ProblemByName& p) { return p.named->name; })
      .def_property_readonly(
          "x", [](const ProblemByName& p) { return p.named->problem->initial_outer(p.seed); }, "start of x")
      .def_property_readonly(
          "w", [](const ProblemByName& p) { return p.named->problem->initial_inner(p.seed); }, "start of w")
      .def_property_readonly("inner_rate", [](const ProblemByName& p) { return p.named->inner_rate; })
      .def_property_readonly("inner_steps", [](const ProblemByName& p) { return p.named->inner_steps; })
      .def_property_readonly("options", [](const ProblemByName& p) { return p.options; })
      .def(
          "inner",
          [](const ProblemByName& p, const Tensor& x, const Tensor& w) {
            return p.named->problem->inner_loss(w, x, {});
          },
          py::arg("x"), py::arg("w"), "The inner loss on all examples.")
      .def(
          "outer",
          [](const ProblemByName& p, const Tensor& x, const Tensor& w) {
            return p.named->problem->outer_loss(w, x, {});
          },
          py::arg("x"), py::arg("w"), "The outer loss on all examples.")
      .def("__repr__",
           [](const ProblemByName& p) { return fmt::format("bilevel.problem('{}')", p.named->name); });
  m.def("problem", [](const py::kwargs& keywords) { return problem_by_name(keywords); });
}

}  // namespace bilevel::python
