#include "bilevel/run/state_checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/run/json_value.h"

namespace bilevel {
namespace {

using nlohmann::json;

constexpr int64_t last_position = int64_t{1} << 62;  // half way to where counting on would overflow

// The file is whole, or it would not have been read; what is wrong here is that it is another run's.
[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(
      fmt::format("checkpoint: {}; was it written by another program or another version?", what));
}

template <typename T>
T value_of(const json& object, const char* name) {
  try {
    return json_as<T>(object.at(name));
  } catch (const std::exception& error) {
    refuse(fmt::format("'{}' is missing or of another kind ({})", name, error.what()));
  }
}

const json& part_of(const Checkpoint& checkpoint, const char* name) {
  const auto found = checkpoint.metadata.find(name);
  if (found == checkpoint.metadata.end() || !found->is_object()) {
    refuse(fmt::format("the part '{}' is missing", name));
  }
  return *found;
}

// Tensors by name, with lists of those that are undefined and of those that lie elsewhere than x.
class StatePut {
 public:
  StatePut(Checkpoint& checkpoint, c10::Device device) : checkpoint_(checkpoint), device_(device) {}
  void operator()(const std::string& name, const Tensor& tensor) {
    if (!tensor.defined()) {
      undefined.push_back(name);
      return;
    }
    if (tensor.device() != device_) elsewhere.push_back(name);
    checkpoint_.tensors["state/" + name] = tensor;
  }
  std::vector<std::string> undefined, elsewhere;

 private:
  Checkpoint& checkpoint_;
  c10::Device device_;
};

class StateTake {
 public:
  StateTake(const Checkpoint& checkpoint, const json& part, c10::Device device)
      : checkpoint_(checkpoint),
        undefined_(value_of<std::set<std::string>>(part, "undefined")),
        elsewhere_(value_of<std::set<std::string>>(part, "elsewhere")),
        device_(device) {}
  Tensor operator()(const std::string& name) const {
    if (undefined_.contains(name)) return {};
    const auto found = checkpoint_.tensors.find("state/" + name);
    if (found == checkpoint_.tensors.end()) refuse(fmt::format("the tensor 'state/{}' is missing", name));
    return elsewhere_.contains(name) ? found->second : found->second.to(device_);
  }

 private:
  const Checkpoint& checkpoint_;
  std::set<std::string> undefined_, elsewhere_;
  c10::Device device_;
};

}  // namespace

void put_state(Checkpoint& checkpoint, const AlgorithmState& state) {
  if (!state.x.defined()) throw std::invalid_argument("checkpoint: the state's x is an undefined tensor");
  StatePut put(checkpoint, state.x.device());
  put("x", state.x);
  put("w", state.inner.w);
  put("v", state.v);
  for (size_t i = 0; i < state.inner.buffers.size(); ++i) {
    put(fmt::format("inner/{}", i), state.inner.buffers[i]);
  }
  std::vector<size_t> transforms;
  for (size_t i = 0; i < state.outer.transforms.size(); ++i) {
    transforms.push_back(state.outer.transforms[i].size());
    for (size_t k = 0; k < transforms.back(); ++k) {
      put(fmt::format("outer/{}/{}", i, k), state.outer.transforms[i][k]);
    }
  }
  std::vector<std::string> memory, numbers;
  for (const auto& [name, tensor] : state.memory) {
    memory.push_back(name);
    put("memory/" + name, tensor);
  }
  // As a tensor, because a number may be infinite or NaN, and JSON has no such numbers.
  std::vector<double> values;
  for (const auto& [name, value] : state.numbers) {
    numbers.push_back(name);
    values.push_back(value);
  }
  checkpoint.tensors["state/numbers"] = at::tensor(values, at::TensorOptions().dtype(at::kDouble));
  checkpoint.metadata["state"] = {{"iteration", state.iteration},
                                  {"inner_step", state.inner.step},
                                  {"inner_buffers", state.inner.buffers.size()},
                                  {"outer_step", state.outer.step},
                                  {"outer_transforms", transforms},
                                  {"memory", memory},
                                  {"numbers", numbers},
                                  {"undefined", put.undefined},
                                  {"elsewhere", put.elsewhere}};
}

AlgorithmState take_state(const Checkpoint& checkpoint, c10::Device device) {
  const json& part = part_of(checkpoint, "state");
  const StateTake take(checkpoint, part, device);
  AlgorithmState state;
  state.iteration = value_of<int64_t>(part, "iteration");
  state.x = take("x");
  state.inner.w = take("w");
  state.v = take("v");
  state.inner.step = value_of<int64_t>(part, "inner_step");
  const auto buffers = value_of<size_t>(part, "inner_buffers");
  for (size_t i = 0; i < buffers; ++i) state.inner.buffers.push_back(take(fmt::format("inner/{}", i)));
  state.outer.step = value_of<int64_t>(part, "outer_step");
  const auto transforms = value_of<std::vector<size_t>>(part, "outer_transforms");
  for (size_t i = 0; i < transforms.size(); ++i) {
    std::vector<Tensor>& remembered = state.outer.transforms.emplace_back();
    for (size_t k = 0; k < transforms[i]; ++k) remembered.push_back(take(fmt::format("outer/{}/{}", i, k)));
  }
  for (const auto& name : value_of<std::vector<std::string>>(part, "memory")) {
    state.memory[name] = take("memory/" + name);
  }
  const auto numbers = value_of<std::vector<std::string>>(part, "numbers");
  const Tensor values = StateTake(checkpoint, part, c10::kCPU)("numbers");
  if (values.scalar_type() != at::kDouble || values.dim() != 1 ||
      values.numel() != static_cast<int64_t>(numbers.size())) {
    refuse(fmt::format("'state/numbers' must hold {} doubles", numbers.size()));
  }
  for (size_t i = 0; i < numbers.size(); ++i) state.numbers[numbers[i]] = values.data_ptr<double>()[i];
  return state;
}

void put_streams(Checkpoint& checkpoint, const Streams& streams) {
  checkpoint.metadata["streams"] = {{"seed", streams.root_seed()},
                                    {"inner_samples", streams.inner_samples()},
                                    {"outer_samples", streams.outer_samples()},
                                    {"inner_batch", streams.options().inner_batch},
                                    {"outer_batch", streams.options().outer_batch},
                                    {"positions", streams.positions()}};
}

void take_streams(const Checkpoint& checkpoint, Streams& streams) {
  const json& part = part_of(checkpoint, "streams");
  const auto same = [](const char* name, auto stored, auto now) {
    if (stored == now) return;
    throw std::runtime_error(
        fmt::format("checkpoint: it was made with {} = {}, but this run has {}: the batches would differ",
                    name, stored, now));
  };
  same("seed", value_of<uint64_t>(part, "seed"), streams.root_seed());
  same("inner_samples", value_of<int64_t>(part, "inner_samples"), streams.inner_samples());
  same("outer_samples", value_of<int64_t>(part, "outer_samples"), streams.outer_samples());
  same("inner_batch", value_of<int64_t>(part, "inner_batch"), streams.options().inner_batch);
  same("outer_batch", value_of<int64_t>(part, "outer_batch"), streams.options().outer_batch);
  const auto positions = value_of<std::map<std::string, int64_t>>(part, "positions");
  for (const auto& [name, position] : positions) {
    if (position < 0) refuse(fmt::format("stream '{}' is at {}, below 0", name, position));
    if (position > last_position) {
      refuse(fmt::format("stream '{}' is at {}, which no run can reach", name, position));
    }
  }
  streams.seek(positions);
}

void put_counts(Checkpoint& checkpoint, const OracleCounts& counts) {
  checkpoint.metadata["counts"] = {{"inner_gradient", counts.inner_gradient},
                                   {"outer_gradient", counts.outer_gradient},
                                   {"hessian", counts.hessian},
                                   {"cross", counts.cross},
                                   {"samples", counts.samples},
                                   {"seconds", counts.seconds}};
}

OracleCounts take_counts(const Checkpoint& checkpoint) {
  const json& part = part_of(checkpoint, "counts");
  OracleCounts counts;
  counts.inner_gradient = value_of<int64_t>(part, "inner_gradient");
  counts.outer_gradient = value_of<int64_t>(part, "outer_gradient");
  counts.hessian = value_of<int64_t>(part, "hessian");
  counts.cross = value_of<int64_t>(part, "cross");
  counts.samples = value_of<int64_t>(part, "samples");
  counts.seconds = value_of<double>(part, "seconds");
  return counts;
}

}  // namespace bilevel
