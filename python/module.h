#pragma once
// The parts of the module bilevel._core: each file adds its own functions and classes.

#include <torch/csrc/utils/pybind.h>

namespace bilevel::python {

namespace py = pybind11;

void add_errors(py::module_& m);
py::handle not_finite_type();  // bilevel.NotFiniteError
void add_tables(py::module_& m);
void add_problems(py::module_& m);
void add_doors(py::module_& m);
void add_hypergradient(py::module_& m);
void add_jobs(py::module_& m);

}  // namespace bilevel::python
