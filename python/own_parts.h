#pragma once
// Jobs with estimators and algorithms that were given as Python objects, in place of names.

#include <torch/csrc/utils/pybind.h>

#include "bilevel/algorithms/registry.h"
#include "bilevel/hypergradients/estimator.h"
#include "bilevel/jobs/solve.h"

namespace bilevel::python {

namespace py = pybind11;

EstimatorList own_estimators(const py::list& own);

// An algorithm of Python's as comparisons make it: with the outer steps that are tried, and the inner rate
// where it has one.
MakeAlgorithm maker_of(const py::object& object);

// With an algorithm or an estimator of Python's: what the registry knows of its own ones is not asked. Called
// without the interpreter's lock.
SolveJobResult solve_own(SolveJobOptions& o, const py::object& own, RunContext& context);

}  // namespace bilevel::python
