#include "bilevel/run/solve_checkpoint.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/run/json_value.h"
#include "bilevel/run/state_checkpoint.h"

namespace bilevel {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }
double number_of(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

json counts_json(const OracleCounts& c) {
  return {c.inner_gradient, c.outer_gradient, c.hessian, c.cross, c.samples, c.seconds};
}
OracleCounts counts_of(const json& values) {
  OracleCounts c;
  c.inner_gradient = json_as<int64_t>(values.at(0));
  c.outer_gradient = json_as<int64_t>(values.at(1));
  c.hessian = json_as<int64_t>(values.at(2));
  c.cross = json_as<int64_t>(values.at(3));
  c.samples = json_as<int64_t>(values.at(4));
  c.seconds = values.at(5).get<double>();
  return c;
}

json bound_json(const ErrorBound& b) {
  return {{"kind", static_cast<int>(b.kind)}, {"value", number(b.value)}};
}
ErrorBound bound_of(const json& j) {
  const int kind = json_as<int>(j.at("kind"));
  if (kind < 0 || kind > static_cast<int>(BoundKind::estimated)) {
    throw std::runtime_error(fmt::format("a bound of the unknown kind {}", kind));
  }
  return {static_cast<BoundKind>(kind), number_of(j.at("value"))};
}

json failure_json(const SolveFailure& f) {
  return {{"iteration", f.iteration}, {"what", f.what}, {"cause", f.cause}, {"repair", f.repair}};
}
SolveFailure failure_of(const json& j) {
  return {json_as<int64_t>(j.at("iteration")), j.at("what").get<std::string>(),
          j.at("cause").get<std::string>(), j.at("repair").get<std::string>()};
}

// The last good state beside the state, under names of its own.
void put_good(Checkpoint& checkpoint, const AlgorithmState& good) {
  if (!good.x.defined()) return;
  Checkpoint apart;
  put_state(apart, good);
  for (const auto& [name, tensor] : apart.tensors) checkpoint.tensors["good/" + name] = tensor;
  checkpoint.metadata["good"] = apart.metadata;
}
AlgorithmState take_good(const Checkpoint& checkpoint, c10::Device device) {
  const auto found = checkpoint.metadata.find("good");
  if (found == checkpoint.metadata.end()) return {};
  Checkpoint apart;
  apart.metadata = *found;
  const std::string prefix = "good/";
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (name.starts_with(prefix)) apart.tensors[name.substr(prefix.size())] = tensor;
  }
  return take_state(apart, device);
}

json record_json(const SolveRecord& r) {
  json metrics = json::object();
  for (const auto& [name, value] : r.metrics) metrics[name] = number(value);
  return {{"iteration", r.iteration},
          {"seconds", r.seconds},
          {"counts", counts_json(r.counts)},
          {"outer_loss", number(r.outer_loss)},
          {"direction_norm", number(r.direction_norm)},
          {"bound", bound_json(r.bound)},
          {"metrics", metrics}};
}
SolveRecord record_of(const json& j) {
  SolveRecord r;
  r.iteration = json_as<int64_t>(j.at("iteration"));
  r.seconds = j.at("seconds").get<double>();
  r.counts = counts_of(j.at("counts"));
  r.outer_loss = number_of(j.at("outer_loss"));
  r.direction_norm = number_of(j.at("direction_norm"));
  r.bound = bound_of(j.at("bound"));
  for (const auto& [name, value] : j.at("metrics").items()) r.metrics[name] = number_of(value);
  return r;
}

}  // namespace

void put_solve(Checkpoint& checkpoint, const SolveState& state) {
  const SolveSummary& s = state.so_far;
  put_state(checkpoint, s.state);
  put_counts(checkpoint, s.counts);
  json records = json::array();
  for (const SolveRecord& record : s.records) records.push_back(record_json(record));
  json failures = json::array();
  for (const SolveFailure& failure : s.failures) failures.push_back(failure_json(failure));
  put_good(checkpoint, state.good);
  const Adjustment& a = state.adjustment;
  checkpoint.metadata["solve"] = {{"algorithm", s.algorithm},
                                  {"seconds", s.seconds},
                                  {"recording_seconds", s.recording_seconds},
                                  {"statuses", s.statuses},
                                  {"records", std::move(records)},
                                  {"streams", state.streams},
                                  {"direction_norm", number(state.direction_norm)},
                                  {"bound", bound_json(state.bound)},
                                  {"recorded", state.recorded},
                                  {"stopped", state.stopped},
                                  {"failures", std::move(failures)},
                                  {"watch",
                                   {state.watch.largest_w, state.watch.largest_direction,
                                    state.watch.looked_into_w, state.watch.looked_into_direction}},
                                  {"adjustment", {a.inner_rate, a.linear_rate, a.outer_rate, a.damping}}};
}

SolveState take_solve(const Checkpoint& checkpoint, c10::Device device) {
  SolveState state;
  SolveSummary& s = state.so_far;
  s.state = take_state(checkpoint, device);
  s.counts = take_counts(checkpoint);
  try {
    const json& part = checkpoint.metadata.at("solve");
    s.algorithm = part.at("algorithm").get<std::string>();
    s.seconds = part.at("seconds").get<double>();
    s.recording_seconds = part.at("recording_seconds").get<double>();
    s.statuses = json_as<std::map<std::string, int64_t>>(part.at("statuses"));
    for (const json& record : part.at("records")) s.records.push_back(record_of(record));
    state.streams = json_as<std::map<std::string, int64_t>>(part.at("streams"));
    state.direction_norm = number_of(part.at("direction_norm"));
    state.bound = bound_of(part.at("bound"));
    state.recorded = json_as<int64_t>(part.at("recorded"));
    state.stopped = part.at("stopped").get<bool>();
    for (const json& failure : part.at("failures")) s.failures.push_back(failure_of(failure));
    const json &watch = part.at("watch"), &adjustment = part.at("adjustment");
    state.watch = {watch.at(0).get<double>(), watch.at(1).get<double>(), watch.at(2).get<double>(),
                   watch.at(3).get<double>()};
    state.adjustment = {adjustment.at(0).get<double>(), adjustment.at(1).get<double>(),
                        adjustment.at(2).get<double>(), adjustment.at(3).get<double>()};
    state.good = take_good(checkpoint, device);
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("checkpoint: the part 'solve' is missing or of another kind ({}); was it written by "
                    "another program or "
                    "another version?",
                    error.what()));
  }
  return state;
}

}  // namespace bilevel
