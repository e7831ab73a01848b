#include "bilevel/run/solve_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <set>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "bilevel/run/archive.h"

namespace bilevel {
namespace {

using nlohmann::json;

BoundKind kind_of(int64_t kind) {
  if (kind < 0 || kind > static_cast<int64_t>(BoundKind::estimated)) {
    throw std::runtime_error(fmt::format("a bound of the unknown kind {}", kind));
  }
  return static_cast<BoundKind>(kind);
}

const auto visit_bound = [](auto& a, auto& b) {
  a.as(
      "kind", b.kind, [](BoundKind kind) { return static_cast<int>(kind); },
      [](const json& kind) { return kind_of(json_as<int64_t>(kind)); });
  a.number("value", b.value);
};

FailureAnswer answer_of(int64_t answer) {
  if (answer < 0 || answer > static_cast<int64_t>(FailureAnswer::went_on)) {
    throw std::runtime_error(fmt::format("a failure with the unknown answer {}", answer));
  }
  return static_cast<FailureAnswer>(answer);
}
// Earlier versions stored the words alone.
int64_t answer_in_words(const std::string& repair) {
  if (repair == "none") return static_cast<int64_t>(FailureAnswer::ended);
  return static_cast<int64_t>(repair == "none: it went on" ? FailureAnswer::went_on
                                                           : FailureAnswer::repaired);
}

const auto visit_failure = [](auto& a, auto& f) {
  a.value("iteration", f.iteration);
  a.value("what", f.what);
  a.value("cause", f.cause);
  a.value("repair", f.repair);
  if constexpr (std::is_const_v<std::remove_reference_t<decltype(f)>>) {
    a.later_value("answer", static_cast<int64_t>(f.answer));
  } else {
    int64_t answer = answer_in_words(f.repair);
    a.later_value("answer", answer);
    f.answer = answer_of(answer);
  }
};

// Four numbers and two counts, as lists.
json watch_json(const FailureWatch& w) {
  return {w.largest_w, w.largest_direction, w.looked_into_w, w.looked_into_direction};
}
FailureWatch watch_of(const json& j) {
  return {j.at(0).get<double>(), j.at(1).get<double>(), j.at(2).get<double>(), j.at(3).get<double>()};
}
json adjustment_json(const Adjustment& a) { return {a.inner_rate, a.linear_rate, a.outer_rate, a.damping}; }
Adjustment adjustment_of(const json& j) {
  return {j.at(0).get<double>(), j.at(1).get<double>(), j.at(2).get<double>(), j.at(3).get<double>()};
}

const auto visit_solve = [](auto& a, auto& state) {
  auto& s = state.so_far;
  a.value("algorithm", s.algorithm);
  a.value("seconds", s.seconds);
  a.value("recording_seconds", s.recording_seconds);
  a.value("statuses", s.statuses);
  a.value("streams", state.streams);
  a.number("direction_norm", state.direction_norm);
  a.part("bound", state.bound, visit_bound);
  a.value("recorded", state.recorded);
  a.value("stopped", state.stopped);
  a.list("failures", s.failures, visit_failure);
  a.as("watch", state.watch, watch_json, watch_of);
  std::vector<int64_t> solves = {state.watch.solves.all, state.watch.solves.failed};
  a.later_value("solves", solves);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(state)>>) {
    state.watch.solves = {solves.at(0), solves.at(1)};
  }
  a.as("adjustment", state.adjustment, adjustment_json, adjustment_of);
};

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
  CheckpointPut put(checkpoint);
  put.state(state.so_far.state);
  put.counts(state.so_far.counts);
  put.part("solve", state, visit_solve);
  put_records(checkpoint, state.so_far.records);
  put_good(checkpoint, state.good);
}

SolveState take_solve(const Checkpoint& checkpoint, c10::Device device) {
  SolveState state;
  CheckpointTake take(checkpoint, device);
  take.state(state.so_far.state);
  take.counts(state.so_far.counts);
  try {
    take.part("solve", state, visit_solve);
    state.so_far.records = take_records(checkpoint);
    state.good = take_good(checkpoint, device);
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("checkpoint: the part 'solve' is missing or of another kind ({}); was it written by "
                    "another program or another version?",
                    error.what()));
  }
  return state;
}

}  // namespace bilevel
