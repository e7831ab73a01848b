#pragma once
// A RunContext for a call from Python: progress and warnings go to Python functions, and a function of
// Python's is asked between two steps whether to stop, after the signals that have come in meanwhile were
// handled.

#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <string>

#include "bilevel/fields/options_view.h"
#include "bilevel/run/run_context.h"

namespace bilevel::python {

namespace py = pybind11;

// `listener` is an object with the methods step(dict), text(str), line(str), warning(str) and stopped(), and
// the attribute wants_steps; `place` a dict with out, resume and save_every. Its functions take the lock.
RunContext make_context(const py::object& listener, const py::dict& place);

// Before a job: the options of the run that `place` resumes, which keeps its options.
void take_resumed(const std::string& job, OptionsView options, const py::dict& place);

}  // namespace bilevel::python
