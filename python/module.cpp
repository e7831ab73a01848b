// The module bilevel._core, which the package bilevel (python/bilevel) wraps.

#include "python/module.h"

PYBIND11_MODULE(_core, m) {
  m.attr("__version__") = BILEVEL_VERSION;
  bilevel::python::add_errors(m);
  bilevel::python::add_tables(m);
  bilevel::python::add_problems(m);
  bilevel::python::add_doors(m);
  bilevel::python::add_hypergradient(m);
  bilevel::python::add_jobs(m);
}
