#include "bilevel/nas/train_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "bilevel/run/json_value.h"

namespace bilevel::nas {
namespace {

std::string buffer_name(size_t i) { return fmt::format("training/momentum.{}", i); }

TrainEpoch epoch_from(const nlohmann::json& json) {
  TrainEpoch record;
  record.epoch = json_as<int64_t>(json.at("epoch"));
  json.at("train_loss").get_to(record.train_loss);
  json.at("train_accuracy").get_to(record.train_accuracy);
  json.at("test_accuracy").get_to(record.test_accuracy);
  json.at("rate").get_to(record.rate);
  json.at("seconds").get_to(record.seconds);
  return record;
}

Tensor take(const Checkpoint& checkpoint, const std::string& name, const Tensor& like) {
  const auto found = checkpoint.tensors.find(name);
  if (found == checkpoint.tensors.end()) {
    throw std::runtime_error(fmt::format("the checkpoint has no {}: it is of something else", name));
  }
  const Tensor& value = found->second;
  if (value.sizes() != like.sizes() || value.scalar_type() != like.scalar_type()) {
    throw std::runtime_error(fmt::format(
        "the checkpoint's {} is {} of {} numbers, but this network needs {} of {}: they are not of one run",
        name, c10::toString(value.scalar_type()), value.numel(), c10::toString(like.scalar_type()),
        like.numel()));
  }
  return value.to(like.device());
}

}  // namespace

nlohmann::ordered_json epoch_json(const TrainEpoch& r) {
  return {{"epoch", r.epoch},
          {"train_loss", r.train_loss},
          {"train_accuracy", r.train_accuracy},
          {"test_accuracy", r.test_accuracy},
          {"rate", r.rate},
          {"seconds", r.seconds}};
}

void put_training(Checkpoint& checkpoint, const TrainState& state) {
  checkpoint.tensors["training/w"] = state.inner.w;
  checkpoint.tensors["training/statistics"] = state.statistics;
  for (size_t i = 0; i < state.inner.buffers.size(); ++i) {
    checkpoint.tensors[buffer_name(i)] = state.inner.buffers[i];
  }
  nlohmann::json history = nlohmann::json::array();
  for (const TrainEpoch& record : state.history) history.push_back(nlohmann::json(epoch_json(record)));
  checkpoint.metadata["training"] = {{"step", state.inner.step},
                                     {"loss_sum", state.loss_sum},
                                     {"correct", state.correct},
                                     {"seconds", state.seconds},
                                     {"history", std::move(history)}};
}

TrainState take_training(const Checkpoint& checkpoint, const Training& training) {
  TrainState state = training.start();
  state.inner.w = take(checkpoint, "training/w", state.inner.w);
  state.statistics = take(checkpoint, "training/statistics", state.statistics);
  for (size_t i = 0; i < state.inner.buffers.size(); ++i) {
    state.inner.buffers[i] = take(checkpoint, buffer_name(i), state.inner.buffers[i]);
  }
  try {
    const nlohmann::json& json = checkpoint.metadata.at("training");
    state.inner.step = json_as<int64_t>(json.at("step"));
    json.at("loss_sum").get_to(state.loss_sum);
    state.correct = json_as<int64_t>(json.at("correct"));
    json.at("seconds").get_to(state.seconds);
    for (const nlohmann::json& record : json.at("history")) state.history.push_back(epoch_from(record));
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("the checkpoint is of no training: {}", error.what()));
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
