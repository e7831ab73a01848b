#include "bilevel/run/solve_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "bilevel/run/json_value.h"
#include "bilevel/run/state_checkpoint.h"

namespace bilevel {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }
double number_of(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

json bound_json(const ErrorBound& b) {
  return {{"kind", static_cast<int>(b.kind)}, {"value", number(b.value)}};
}
BoundKind kind_of(int64_t kind) {
  if (kind < 0 || kind > static_cast<int64_t>(BoundKind::estimated)) {
    throw std::runtime_error(fmt::format("a bound of the unknown kind {}", kind));
  }
  return static_cast<BoundKind>(kind);
}
ErrorBound bound_of(const json& j) {
  return {kind_of(json_as<int64_t>(j.at("kind"))), number_of(j.at("value"))};
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

// Records are a row of numbers each, as a run may have a hundred thousand: iteration, seconds, counts, loss,
// norm, the bound's kind and value, and a metric in each of the columns after them.
constexpr int64_t fixed_columns = 12;
constexpr double largest_whole = 9007199254740992.0;  // 2^53: all below are doubles

int64_t whole(double value) {
  if (!(std::abs(value) <= largest_whole) || value != std::floor(value)) {
    throw std::runtime_error(fmt::format("a record has {} where a whole number belongs", value));
  }
  return static_cast<int64_t>(value);
}

void put_records(Checkpoint& checkpoint, const std::vector<SolveRecord>& records) {
  std::set<std::string> names;
  for (const SolveRecord& r : records) {
    for (const auto& [name, value] : r.metrics) names.insert(name);
  }
  const auto rows = std::ssize(records), metrics = std::ssize(names);
  const Tensor values = at::empty({rows, fixed_columns + metrics}, at::kDouble);
  const Tensor measured = at::zeros({rows, metrics}, at::kByte);  // a metric may be NaN, or not be there
  double* to = values.data_ptr<double>();
  uint8_t* there = measured.data_ptr<uint8_t>();
  for (const SolveRecord& r : records) {
    const OracleCounts& c = r.counts;
    for (const double value :
         {static_cast<double>(r.iteration), r.seconds, static_cast<double>(c.inner_gradient),
          static_cast<double>(c.outer_gradient), static_cast<double>(c.hessian), static_cast<double>(c.cross),
          static_cast<double>(c.samples), c.seconds, r.outer_loss, r.direction_norm,
          static_cast<double>(r.bound.kind), r.bound.value}) {
      *to++ = value;
    }
    for (const std::string& name : names) {
      const auto found = r.metrics.find(name);
      *there++ = found != r.metrics.end() ? 1 : 0;
      *to++ = found != r.metrics.end() ? found->second : 0;
    }
  }
  checkpoint.tensors["solve/records"] = values;
  checkpoint.tensors["solve/measured"] = measured;
  checkpoint.metadata["solve"]["metrics"] = names;
}

std::vector<SolveRecord> take_records(const Checkpoint& checkpoint) {
  const auto names = checkpoint.metadata.at("solve").at("metrics").get<std::vector<std::string>>();
  const Tensor& values = checkpoint.tensors.at("solve/records");
  const Tensor& measured = checkpoint.tensors.at("solve/measured");
  const int64_t metrics = std::ssize(names);
  if (values.dim() != 2 || values.scalar_type() != at::kDouble || values.size(1) != fixed_columns + metrics ||
      measured.scalar_type() != at::kByte || measured.sizes() != at::IntArrayRef{values.size(0), metrics}) {
    throw std::runtime_error("its records do not fit its metrics");
  }
  std::vector<SolveRecord> records(static_cast<size_t>(values.size(0)));
  const double* from = values.data_ptr<double>();
  const uint8_t* there = measured.data_ptr<uint8_t>();
  for (SolveRecord& r : records) {
    r.iteration = whole(from[0]);
    r.seconds = from[1];
    r.counts.inner_gradient = whole(from[2]);
    r.counts.outer_gradient = whole(from[3]);
    r.counts.hessian = whole(from[4]);
    r.counts.cross = whole(from[5]);
    r.counts.samples = whole(from[6]);
    r.counts.seconds = from[7];
    r.outer_loss = from[8];
    r.direction_norm = from[9];
    r.bound = {kind_of(whole(from[10])), from[11]};
    from += fixed_columns;
    for (const std::string& name : names) {
      if (*there++ != 0) r.metrics[name] = *from;
      ++from;
    }
  }
  return records;
}

}  // namespace

void put_solve(Checkpoint& checkpoint, const SolveState& state) {
  const SolveSummary& s = state.so_far;
  put_state(checkpoint, s.state);
  put_counts(checkpoint, s.counts);
  json failures = json::array();
  for (const SolveFailure& failure : s.failures) failures.push_back(failure_json(failure));
  put_good(checkpoint, state.good);
  const Adjustment& a = state.adjustment;
  checkpoint.metadata["solve"] = {{"algorithm", s.algorithm},
                                  {"seconds", s.seconds},
                                  {"recording_seconds", s.recording_seconds},
                                  {"statuses", s.statuses},
                                  {"streams", state.streams},
                                  {"direction_norm", number(state.direction_norm)},
                                  {"bound", bound_json(state.bound)},
                                  {"recorded", state.recorded},
                                  {"stopped", state.stopped},
                                  {"failures", std::move(failures)},
                                  {"watch",
                                   {state.watch.largest_w, state.watch.largest_direction,
                                    state.watch.looked_into_w, state.watch.looked_into_direction}},
                                  {"solves", {state.watch.solves.all, state.watch.solves.failed}},
                                  {"adjustment", {a.inner_rate, a.linear_rate, a.outer_rate, a.damping}}};
  put_records(checkpoint, s.records);
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
    s.records = take_records(checkpoint);
    state.streams = json_as<std::map<std::string, int64_t>>(part.at("streams"));
    state.direction_norm = number_of(part.at("direction_norm"));
    state.bound = bound_of(part.at("bound"));
    state.recorded = json_as<int64_t>(part.at("recorded"));
    state.stopped = part.at("stopped").get<bool>();
    for (const json& failure : part.at("failures")) s.failures.push_back(failure_of(failure));
    const json &watch = part.at("watch"), &adjustment = part.at("adjustment");
    state.watch = {watch.at(0).get<double>(), watch.at(1).get<double>(), watch.at(2).get<double>(),
                   watch.at(3).get<double>()};
    if (const auto solves = part.find("solves"); solves != part.end()) {
      state.watch.solves = {json_as<int64_t>(solves->at(0)), json_as<int64_t>(solves->at(1))};
    }
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
