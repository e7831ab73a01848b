#include "bilevel/meta/learn_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/run/json_value.h"
#include "bilevel/run/state_checkpoint.h"

namespace bilevel::meta {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
double number(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Json counts_json(const OracleCounts& c) {
  return {{"inner_gradient", c.inner_gradient},
          {"outer_gradient", c.outer_gradient},
          {"hessian", c.hessian},
          {"cross", c.cross},
          {"samples", c.samples}};
}

LearnRecord record_of(const nlohmann::json& j) {
  LearnRecord r;
  r.iteration = json_as<int64_t>(j.at("iteration"));
  r.outer_loss = number(j.at("outer_loss"));
  r.direction_norm = number(j.at("direction_norm"));
  r.valid.accuracy = number(j.at("valid_accuracy"));
  r.valid.accuracy_interval = number(j.at("valid_interval"));
  r.valid.loss = number(j.at("valid_loss"));
  r.valid.loss_interval = number(j.at("valid_loss_interval"));
  r.valid.tasks = json_as<int64_t>(j.at("valid_tasks"));
  r.seconds = j.at("seconds").get<double>();
  const nlohmann::json& counts = j.at("counts");
  r.counts.inner_gradient = json_as<int64_t>(counts.at("inner_gradient"));
  r.counts.outer_gradient = json_as<int64_t>(counts.at("outer_gradient"));
  r.counts.hessian = json_as<int64_t>(counts.at("hessian"));
  r.counts.cross = json_as<int64_t>(counts.at("cross"));
  r.counts.samples = json_as<int64_t>(counts.at("samples"));
  return r;
}

// Checkpoints of earlier versions have none: the best from here on.
void take_best(const Checkpoint& checkpoint, int64_t outer, c10::Device device, LearnState& state) {
  const auto found = checkpoint.tensors.find("best_x");
  if (found == checkpoint.tensors.end()) return;
  if (found->second.numel() != outer) {
    throw std::runtime_error(
        fmt::format("its best x has {} numbers, the learner has {}", found->second.numel(), outer));
  }
  state.best_x = found->second.to(device);
  state.best_iteration = json_as<int64_t>(checkpoint.metadata.at("learn").at("best_iteration"));
  const auto record = std::find_if(state.history.begin(), state.history.end(),
                                   [&](const LearnRecord& r) { return r.iteration == state.best_iteration; });
  if (record == state.history.end()) throw std::runtime_error("its best iteration is none of its records");
  state.best_valid = record->valid;
}

}  // namespace

Json record_json(const LearnRecord& r) {
  return {{"iteration", r.iteration},
          {"outer_loss", number(r.outer_loss)},
          {"valid_accuracy", number(r.valid.accuracy)},
          {"valid_interval", number(r.valid.accuracy_interval)},
          {"valid_loss", number(r.valid.loss)},
          {"valid_loss_interval", number(r.valid.loss_interval)},
          {"valid_tasks", r.valid.tasks},
          {"direction_norm", number(r.direction_norm)},
          {"counts", counts_json(r.counts)},
          {"seconds", r.seconds}};
}

Checkpoint learn_checkpoint(const LearnState& state) {
  Checkpoint checkpoint;
  put_state(checkpoint, state.algorithm);
  put_counts(checkpoint, state.counts);
  nlohmann::json history = nlohmann::json::array();
  for (const LearnRecord& r : state.history) history.push_back(nlohmann::json(record_json(r)));
  checkpoint.metadata["learn"] = {{"loss_sum", state.loss_sum},
                                  {"loss_count", state.loss_count},
                                  {"direction_norm", state.direction_norm},
                                  {"statuses", state.statuses},
                                  {"bytes_kept", state.bytes_kept},
                                  {"history", history},
                                  {"seconds", state.seconds}};
  if (state.best_x.defined()) {
    checkpoint.tensors["best_x"] = state.best_x;
    checkpoint.metadata["learn"]["best_iteration"] = state.best_iteration;
  }
  return checkpoint;
}

LearnState learn_state(const Checkpoint& checkpoint, int64_t outer, c10::Device device) {
  try {
    LearnState state;
    state.algorithm = take_state(checkpoint, device);
    if (state.algorithm.x.numel() != outer) {
      throw std::runtime_error(
          fmt::format("it holds an x of {} numbers, the learner has {}", state.algorithm.x.numel(), outer));
    }
    state.counts = take_counts(checkpoint);
    const nlohmann::json& learn = checkpoint.metadata.at("learn");
    state.loss_sum = learn.at("loss_sum").get<double>();
    state.loss_count = json_as<int64_t>(learn.at("loss_count"));
    state.direction_norm = learn.at("direction_norm").get<double>();
    state.statuses = json_as<std::map<std::string, int64_t>>(learn.at("statuses"));
    state.bytes_kept = json_as<int64_t>(learn.at("bytes_kept"));
    state.seconds = learn.at("seconds").get<double>();
    for (const auto& r : learn.at("history")) state.history.push_back(record_of(r));
    take_best(checkpoint, outer, device, state);
    return state;
  } catch (const std::exception& error) {  // whatever is missing or of another kind
    throw std::runtime_error(fmt::format("the checkpoint is none of this learner: {}", error.what()));
  }
}

}  // namespace bilevel::meta
