#pragma once
// A state's parts are listed once, and the list serves both ways: it puts them into a checkpoint, and takes
// them out of it again, bit for bit. Putting and taking classes have the same members, and what lists the
// parts is a template over them:
//
//     template <typename Archive, typename Record>
//     void visit(Archive& a, Record& r) {
//       a.value("iteration", r.iteration);
//       a.number("loss", r.loss);
//     }
//
// Taking throws where something is missing or of another kind. Needs nlohmann-json where it is included.

#include <c10/core/Device.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/algorithms/algorithm.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/tensor.h"
#include "bilevel/run/checkpoint.h"
#include "bilevel/run/json_value.h"
#include "bilevel/run/state_checkpoint.h"

namespace bilevel {

// The members of one JSON object, in the order of the visit.
class JsonPut {
 public:
  template <typename T>
  void value(const char* name, const T& value) {
    object_[name] = value;
  }
  // A double that may be none: JSON has null for it.
  void number(const char* name, double value) {
    object_[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  }
  // What earlier versions did not store.
  template <typename T>
  void later_value(const char* name, const T& stored) {
    value(name, stored);
  }
  void later_number(const char* name, double stored) { number(name, stored); }
  // An object of its own: visit(archive, part).
  template <typename T, typename Visit>
  void part(const char* name, const T& part, const Visit& visit) {
    JsonPut inside;
    visit(inside, part);
    object_[name] = inside.object();
  }
  template <typename T, typename Visit>
  void list(const char* name, const std::vector<T>& all, const Visit& visit) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const T& one : all) {
      JsonPut inside;
      visit(inside, one);
      array.push_back(inside.object());
    }
    object_[name] = std::move(array);
  }
  // A value that is stored as another: put(value), take(stored).
  template <typename T, typename Put, typename Take>
  void as(const char* name, const T& value, const Put& put, const Take& /*take*/) {
    object_[name] = put(value);
  }
  const nlohmann::ordered_json& object() const { return object_; }

 private:
  nlohmann::ordered_json object_ = nlohmann::ordered_json::object();
};

class JsonTake {
 public:
  explicit JsonTake(const nlohmann::json& object) : object_(object) {}
  template <typename T>
  void value(const char* name, T& value) {
    value = json_as<T>(object_.at(name));
  }
  void number(const char* name, double& value) { value = number_of(object_.at(name)); }
  template <typename T>
  void later_value(const char* name, T& stored) {
    if (object_.contains(name)) value(name, stored);
  }
  void later_number(const char* name, double& stored) {
    stored = object_.contains(name) ? number_of(object_.at(name)) : std::numeric_limits<double>::quiet_NaN();
  }
  template <typename T, typename Visit>
  void part(const char* name, T& part, const Visit& visit) {
    JsonTake inside(object_.at(name));
    visit(inside, part);
  }
  template <typename T, typename Visit>
  void list(const char* name, std::vector<T>& all, const Visit& visit) {
    for (const nlohmann::json& element : object_.at(name)) {
      JsonTake inside(element);
      visit(inside, all.emplace_back());
    }
  }
  template <typename T, typename Put, typename Take>
  void as(const char* name, T& value, const Put& /*put*/, const Take& take) {
    value = take(object_.at(name));
  }

 private:
  static double number_of(const nlohmann::json& value) {
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  }
  const nlohmann::json& object_;
};

// A whole checkpoint: the algorithm's state, counts and tensors by name, and parts, each a JSON object.
class CheckpointPut {
 public:
  explicit CheckpointPut(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  void state(const AlgorithmState& state) { put_state(checkpoint_, state); }
  void counts(const OracleCounts& counts) { put_counts(checkpoint_, counts); }
  void tensor(const std::string& name, const Tensor& tensor) { checkpoint_.tensors[name] = tensor; }
  // One that may be undefined, or was not stored by earlier versions.
  void later_tensor(const std::string& name, const Tensor& stored) {
    if (stored.defined()) tensor(name, stored);
  }
  template <typename T, typename Visit>
  void part(const char* name, const T& part, const Visit& visit) {
    JsonPut inside;
    visit(inside, part);
    checkpoint_.metadata[name].update(nlohmann::json(inside.object()));
  }

 private:
  Checkpoint& checkpoint_;
};

// Tensors go to the device.
class CheckpointTake {
 public:
  CheckpointTake(const Checkpoint& checkpoint, c10::Device device)
      : checkpoint_(checkpoint), device_(device) {}
  void state(AlgorithmState& state) { state = take_state(checkpoint_, device_); }
  void counts(OracleCounts& counts) { counts = take_counts(checkpoint_); }
  void tensor(const std::string& name, Tensor& tensor) {
    const auto found = checkpoint_.tensors.find(name);
    if (found == checkpoint_.tensors.end()) throw std::runtime_error("the tensor '" + name + "' is missing");
    tensor = found->second.to(device_);
  }
  void later_tensor(const std::string& name, Tensor& stored) {
    if (checkpoint_.tensors.contains(name)) tensor(name, stored);
  }
  template <typename T, typename Visit>
  void part(const char* name, T& part, const Visit& visit) {
    JsonTake inside(checkpoint_.metadata.at(name));
    visit(inside, part);
  }

 private:
  const Checkpoint& checkpoint_;
  c10::Device device_;
};

}  // namespace bilevel
