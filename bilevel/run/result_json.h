#pragma once
// What the results of all jobs have in common as JSON. Needs nlohmann-json where it is included.

#include "bilevel/algorithms/solve.h"
#include "bilevel/core/oracle.h"
#include "bilevel/run/json.h"

namespace bilevel {

inline Json counts_json(const OracleCounts& c) {
  return {{"inner_gradient", c.inner_gradient},
          {"outer_gradient", c.outer_gradient},
          {"hessian", c.hessian},
          {"cross", c.cross},
          {"samples", c.samples}};
}

inline Json record_json(const SolveRecord& r) {
  Json out = {{"step", r.iteration},
              {"iteration", r.iteration},
              {"seconds", r.seconds},
              {"outer_loss", number(r.outer_loss)},
              {"direction_norm", r.direction_norm < 0 ? Json(nullptr) : number(r.direction_norm)},
              {"counts", counts_json(r.counts)}};
  if (r.bound.kind != BoundKind::none) {
    out["error_bound"] = number(r.bound.value);
    out["error_bound_kind"] = name_of(r.bound.kind);
  }
  for (const auto& [name, value] : r.metrics) out[name] = number(value);
  return out;
}

// Why it stopped, what it cost, and how it went along the way.
inline Json solve_json(const SolveSummary& s) {
  Json out = {
      {"algorithm", s.algorithm},        {"stopped", name_of(s.reason)}, {"iterations", s.state.iteration},
      {"counts", counts_json(s.counts)}, {"seconds", s.seconds},         {"linear_solves", s.statuses}};
  if (!s.message.empty()) out["message"] = s.message;
  if (!s.failures.empty()) {
    out["failures"] = Json::array();
    for (const SolveFailure& f : s.failures) {
      out["failures"].push_back(
          {{"iteration", f.iteration}, {"what", f.what}, {"cause", f.cause}, {"repair", f.repair}});
    }
  }
  out["history"] = Json::array();
  for (const SolveRecord& record : s.records) out["history"].push_back(record_json(record));
  return out;
}

}  // namespace bilevel
