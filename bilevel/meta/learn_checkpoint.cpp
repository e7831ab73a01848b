#include "bilevel/meta/learn_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bilevel/run/archive.h"

namespace bilevel::meta {
namespace {

const auto visit_counts = [](auto& a, auto& c) {
  a.value("inner_gradient", c.inner_gradient);
  a.value("outer_gradient", c.outer_gradient);
  a.value("hessian", c.hessian);
  a.value("cross", c.cross);
  a.value("samples", c.samples);
};

const auto visit_record = [](auto& a, auto& r) {
  a.value("iteration", r.iteration);
  a.number("outer_loss", r.outer_loss);
  a.number("valid_accuracy", r.valid.accuracy);
  a.number("valid_interval", r.valid.accuracy_interval);
  a.number("valid_loss", r.valid.loss);
  a.number("valid_loss_interval", r.valid.loss_interval);
  a.value("valid_tasks", r.valid.tasks);
  a.number("direction_norm", r.direction_norm);
  a.part("counts", r.counts, visit_counts);
  a.value("seconds", r.seconds);
};

const auto visit_learning = [](auto& archive, auto& state) {
  archive.state(state.algorithm);
  archive.counts(state.counts);
  archive.later_tensor("best_x", state.best_x);
  archive.part("learn", state, [](auto& a, auto& s) {
    a.value("loss_sum", s.loss_sum);
    a.value("loss_count", s.loss_count);
    a.value("direction_norm", s.direction_norm);
    a.value("statuses", s.statuses);
    a.value("bytes_kept", s.bytes_kept);
    a.list("history", s.history, visit_record);
    a.value("seconds", s.seconds);
    a.later_value("best_iteration", s.best_iteration);
  });
};

// Checkpoints of earlier versions have none: the best from here on.
void complete_best(int64_t outer, LearnState& state) {
  if (!state.best_x.defined()) return;
  if (state.best_x.numel() != outer) {
    throw std::runtime_error(
        fmt::format("its best x has {} numbers, the learner has {}", state.best_x.numel(), outer));
  }
  const auto record = std::find_if(state.history.begin(), state.history.end(),
                                   [&](const LearnRecord& r) { return r.iteration == state.best_iteration; });
  if (record == state.history.end())
    throw std::runtime_error("the checkpoint has no record of its best iteration");
  state.best_valid = record->valid;
}

}  // namespace

nlohmann::ordered_json record_json(const LearnRecord& record) {
  JsonPut out;
  visit_record(out, record);
  return out.object();
}

void put_learning(Checkpoint& checkpoint, const LearnState& state) {
  CheckpointPut put(checkpoint);
  visit_learning(put, state);
}

LearnState learn_state(const Checkpoint& checkpoint, int64_t outer, c10::Device device) {
  try {
    LearnState state;
    CheckpointTake take(checkpoint, device);
    visit_learning(take, state);
    if (state.algorithm.x.numel() != outer) {
      throw std::runtime_error(
          fmt::format("it holds an x of {} numbers, the learner has {}", state.algorithm.x.numel(), outer));
    }
    complete_best(outer, state);
    return state;
  } catch (const std::exception& error) {  // whatever is missing or of another kind
    throw std::runtime_error(fmt::format("not a checkpoint of this learner: {}", error.what()));
  }
}

}  // namespace bilevel::meta
