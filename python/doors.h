#pragma once
// Estimators and algorithms written in Python, which pass through the same doors as C++ ones: subclasses of
// bilevel.Estimator and bilevel.Algorithm.

#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "bilevel/algorithms/registry.h"
#include "bilevel/hypergradients/estimator.h"

namespace bilevel::python {

namespace py = pybind11;

// Throws TypeError where the object is no such subclass.
std::shared_ptr<const HypergradientEstimator> estimator_from(const py::object& object);
// An algorithm whose outer steps are those of `outer`.
std::unique_ptr<Algorithm> algorithm_from(const py::object& object, const OuterOptions& outer);

}  // namespace bilevel::python
