#pragma once
// Results of jobs as Python has them: the summary as plain data, and tensors beside it.

#include <torch/csrc/utils/pybind.h>

#include <string>

#include "bilevel/jobs/adapt.h"
#include "bilevel/jobs/check.h"
#include "bilevel/jobs/clean.h"
#include "bilevel/jobs/diagnose.h"
#include "bilevel/jobs/export.h"
#include "bilevel/jobs/interact.h"
#include "bilevel/jobs/job_end.h"
#include "bilevel/jobs/predict.h"
#include "bilevel/jobs/solve.h"
#include "bilevel/jobs/tune.h"
#include "bilevel/run/json.h"
#include "python/structure.h"

namespace bilevel::python {

namespace py = pybind11;

// Of the variables of a problem of one's own.
struct Shapes {
  Structure x, w;
};

py::dict finished(const Json& json, const JobEnd& end, const std::string& folder);

void add_more(const SolveJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const CheckJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const CleanJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const TuneJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const InteractJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const AdaptJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const PredictJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const ExportJobResult& r, const Shapes& shapes, py::dict& out);
void add_more(const DiagnoseJobResult& r, const Shapes& shapes, py::dict& out);
template <typename Result>
void add_more(const Result&, const Shapes&, py::dict&) {}

}  // namespace bilevel::python
