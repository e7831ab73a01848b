#include "bilevel/nas/train_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>

#include "bilevel/run/archive.h"

namespace bilevel::nas {
namespace {

const auto visit_epoch = [](auto& a, auto& r) {
  a.value("epoch", r.epoch);
  a.value("train_loss", r.train_loss);
  a.value("train_accuracy", r.train_accuracy);
  a.value("test_accuracy", r.test_accuracy);
  a.value("rate", r.rate);
  a.value("seconds", r.seconds);
};

const auto visit_training = [](auto& archive, auto& state) {
  archive.tensor("training/w", state.inner.w);
  archive.tensor("training/statistics", state.statistics);
  for (size_t i = 0; i < state.inner.buffers.size(); ++i) {
    archive.tensor(fmt::format("training/momentum.{}", i), state.inner.buffers[i]);
  }
  archive.part("training", state, [](auto& a, auto& s) {
    a.value("step", s.inner.step);
    a.value("loss_sum", s.loss_sum);
    a.value("correct", s.correct);
    a.value("seconds", s.seconds);
    a.list("history", s.history, visit_epoch);
  });
};

// What was taken must fit the training that begins with `like`.
void require_like(const char* name, const Tensor& taken, const Tensor& like) {
  if (taken.sizes() == like.sizes() && taken.scalar_type() == like.scalar_type()) return;
  throw std::runtime_error(fmt::format(
      "the checkpoint's {} is {} of {} numbers, but this network needs {} of {}: they are not of one run",
      name, c10::toString(taken.scalar_type()), taken.numel(), c10::toString(like.scalar_type()),
      like.numel()));
}

}  // namespace

nlohmann::ordered_json epoch_json(const TrainEpoch& record) {
  JsonPut out;
  visit_epoch(out, record);
  return out.object();
}

void put_training(Checkpoint& checkpoint, const TrainState& state) {
  CheckpointPut put(checkpoint);
  visit_training(put, state);
}

TrainState take_training(const Checkpoint& checkpoint, const Training& training) {
  const TrainState start = training.start();
  TrainState state = start;
  try {
    CheckpointTake take(checkpoint, start.inner.w.device());
    visit_training(take, state);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("not a checkpoint of a training run: {}", error.what()));
  }
  require_like("training/w", state.inner.w, start.inner.w);
  require_like("training/statistics", state.statistics, start.statistics);
  for (size_t i = 0; i < state.inner.buffers.size(); ++i) {
    require_like("momentum", state.inner.buffers[i], start.inner.buffers[i]);
  }
  const int64_t begin = state.epoch() * training.steps_per_epoch();
  if (state.inner.step < begin || state.inner.step > begin + training.steps_per_epoch() ||
      state.epoch() > training.options().epochs) {
    throw std::runtime_error(
        fmt::format("the checkpoint is at step {} after {} epochs, but here are {} epochs of {} steps: they "
                    "are not of one run",
                    state.inner.step, state.epoch(), training.options().epochs, training.steps_per_epoch()));
  }
  return state;
}

}  // namespace bilevel::nas
