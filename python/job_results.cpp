#include "python/job_results.h"

#include <cstdint>

#include "bilevel/run/result_json.h"
#include "python/keywords.h"

namespace bilevel::python {
namespace {

py::object or_none(const Tensor& t) { return t.defined() ? py::cast(t) : py::object(py::none()); }

}  // namespace

py::dict finished(const Json& json, const JobEnd& end, const std::string& folder) {
  py::dict result = json.is_object() ? py::dict(to_python(json)) : py::dict();
  result["folder"] = folder.empty() ? py::object(py::none()) : py::str(folder);
  result["status"] = py::str(std::string(name_of(end.status)));
  if (!end.message.empty()) result["message"] = python_text(end.message);
  return result;
}

void add_more(const SolveJobResult& r, const Shapes& shapes, py::dict& out) {
  out["x"] = shapes.x.shown(r.summary.state.x);
  out["w"] = shapes.w.shown(r.summary.inner_solution);
}

void add_more(const CheckJobResult& r, const Shapes& shapes, py::dict& out) {
  py::dict values;
  for (const MethodRow& row : r.check.methods) {
    if (row.hypergradient.value.defined())
      values[py::str(row.name)] = shapes.x.shown(row.hypergradient.value);
  }
  out["hypergradients"] = values;
  out["implicit_reference"] = shapes.x.shown(r.check.implicit.value);
  out["unrolled_reference"] = shapes.x.shown(r.check.unrolled.value);
}

void add_more(const CleanJobResult& r, const Shapes&, py::dict& out) {
  out["by"] = r.by;
  out["weights"] = or_none(r.clean.weights);
  out["suspects"] = r.clean.suspects;  // positions
  out["suggested"] = or_none(r.clean.suggested);
  out["class_names"] = r.sets.class_names;
  if (r.table) {
    out["probabilities"] = r.table->posterior;
    out["model_weights"] = r.table->model.weights;
  } else {
    out["model_weights"] = or_none(r.clean.cleaned.w);
  }
}

void add_more(const TuneJobResult& r, const Shapes&, py::dict& out) {
  out["by"] = r.by;
  out["x"] = or_none(r.x);
  out["model_weights"] = or_none(r.model);
  out["order"] = r.order;
  out["class_names"] = r.class_names;
  out["feature_names"] = r.feature_names;
}

void add_more(const InteractJobResult& r, const Shapes&, py::dict& out) {
  out["cluster_of_task"] = r.suggested;
  out["interactions"] = or_none(r.interact.learned.interaction);
}

void add_more(const AdaptJobResult& r, const Shapes&, py::dict& out) {
  out["probabilities"] = or_none(r.probabilities);
}

void add_more(const PredictJobResult& r, const Shapes&, py::dict& out) {
  if (r.predicts_numbers()) {
    out["numbers"] = r.probabilities.squeeze(1);  // "values" is a method of every mapping
    return;
  }
  out["probabilities"] = r.probabilities;
  out["best"] = r.best;  // positions in `classes`
  py::list names;
  for (const int64_t k : r.best) names.append(r.classes.at(static_cast<size_t>(k)));
  out["labels"] = names;
}

void add_more(const ExportJobResult& r, const Shapes&, py::dict& out) {
  out["description"] = to_python(r.description);
}

void add_more(const DiagnoseJobResult& r, const Shapes&, py::dict& out) {
  py::list calls;
  for (const SuggestedJob& job : r.suggested) {
    py::dict options;
    for (const auto& [name, words] : job.options) options[py::str(name)] = words;
    calls.append(py::make_tuple(job.job, options));
  }
  out["suggested"] = calls;
}

}  // namespace bilevel::python
