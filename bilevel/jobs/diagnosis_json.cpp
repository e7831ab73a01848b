#include "bilevel/jobs/diagnosis_json.h"

#include <cstdint>
#include <limits>

#include "bilevel/jobs/recommended_options.h"
#include "bilevel/run/result_json.h"

namespace bilevel {
namespace {

const char* reference_name(ReferenceKind kind) {
  switch (kind) {
    case ReferenceKind::none:
      return "none";
    case ReferenceKind::solution:
      return "solution";
    case ReferenceKind::iterate:
      return "iterate";
    case ReferenceKind::unrolled:
      return "unrolled";
  }
  return "?";
}

Json point_json(const InnerPoint& p) {
  return {{"smallest_eigenvalue", number(p.spectrum.smallest)},
          {"largest_eigenvalue", number(p.spectrum.largest)},
          {"condition_number", number(p.spectrum.condition_number())},
          {"spectrum_status", name_of(p.spectrum.status)},
          {"products", p.spectrum.products},
          {"gradient_norm", number(p.gradient_norm)},
          {"distance", number(p.distance)}};
}

Json method_json(const MethodDiagnosis& m) {
  Json out = {{"name", m.name}};
  if (m.asked_terms) {
    out["asked"] = {
        {"K", *m.asked_terms}, {"error", number(m.asked_error)}, {"basis", name_of(m.asked_basis)}};
  }
  out["reaches"] = m.reaches;
  out["usable"] = m.usable;
  if (m.terms) out["K"] = *m.terms;
  out["inner_steps"] = m.inner_steps;
  out["error"] = number(m.error);
  out["basis"] = name_of(m.basis);
  out["another_error"] = number(m.another_error);
  out["counts"] = counts_json(m.counts);
  out["calls"] = oracle_calls(m.counts);
  out["seconds"] = m.seconds;
  out["bytes"] = m.bytes;
  if (!m.note.empty()) out["note"] = m.note;
  return out;
}

}  // namespace

Json diagnosis_json(const Diagnosis& d, const std::vector<std::string>& commands) {
  Json out = {{"problem", d.problem},
              {"inner_size", d.inner_size},
              {"outer_size", d.outer_size},
              {"accuracy", d.accuracy}};
  out["start"] = point_json(d.start);
  out["end"] = point_json(d.end);
  out["solution"] = d.solution ? point_json(*d.solution) : Json(nullptr);
  out["negative_curvature"] = d.negative_curvature;
  const bool counted = d.steps_predicted < std::numeric_limits<int64_t>::max();
  out["inner"] = {{"optimizer", d.inner.optimizer},
                  {"steps", d.inner.steps},
                  {"rate", number(d.inner.rate)},
                  {"momentum", d.inner.momentum},
                  {"largest_safe_rate", number(d.largest_safe_rate)},
                  {"unsafe_rate", d.unsafe_rate},
                  {"best_rate", number(d.best_rate)},
                  {"contraction", number(d.contraction)},
                  {"best_contraction", number(d.best_contraction)},
                  {"steps_predicted", counted ? Json(d.steps_predicted) : Json(nullptr)},
                  {"end_steps", d.end_steps},
                  {"error", number(d.inner_error)},
                  {"basis", name_of(d.inner_basis)}};
  out["reference"] = reference_name(d.reference);
  if (!d.reference_why.empty()) out["reference_why"] = d.reference_why;
  out["curvature"] = {{"kind", d.curvature.kind}, {"damping", d.curvature.damping}};
  out["unit_seconds"] = {{"inner_gradient", d.unit.inner_gradient},
                         {"outer_gradient", d.unit.outer_gradient},
                         {"hessian", d.unit.hessian},
                         {"cross", d.unit.cross}};
  out["methods"] = Json::array();
  for (const MethodDiagnosis& m : d.methods) out["methods"].push_back(method_json(m));
  out["recommendation"] = recommendation_json(d.recommendation);
  out["commands"] = commands;
  out["counts"] = counts_json(d.counts);
  out["seconds"] = d.seconds;
  return out;
}

Json search_diagnosis_json(const nas::SearchDiagnosis& d) {
  return {{"method", d.method},
          {"K", d.terms},
          {"curvature", d.curvature},
          {"series_rate", number(d.linear_rate)},
          {"smallest_eigenvalue", number(d.hessian.smallest)},
          {"largest_eigenvalue", number(d.hessian.largest)},
          {"implicit_share", number(d.implicit_share)},
          {"error", number(d.error)},
          {"sentence", d.sentence},
          {"counts", counts_json(d.counts)},
          {"seconds", d.seconds}};
}

}  // namespace bilevel
