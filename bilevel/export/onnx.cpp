// A model as ONNX, by the protobuf of libonnx-dev. The recorded function (recorded_module.h) is translated
// operation by operation; the arrays keep their names, and the description is a property of the model.
#include "bilevel/export/formats.h"

#ifdef BILEVEL_HAS_ONNX
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "bilevel/data/byte_source.h"
#include "bilevel/data/write_file.h"
#include "bilevel/export/onnx_translation.h"
#include "bilevel/export/recorded_module.h"

namespace bilevel {
namespace {

// What ONNX Runtime from 1.6 and every tool since the end of 2020 read.
constexpr int64_t ir_version = 7, operator_set = 13;
constexpr const char* any_number = "n";
constexpr int64_t largest_onnx = (int64_t{1} << 31) - 1;  // a message of protobuf

void put_value(onnx::ValueInfoProto& value, const std::string& name, at::ScalarType type,
               const std::vector<int64_t>& shape) {
  value.set_name(name);
  onnx::TypeProto_Tensor& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx_type(type));
  tensor.mutable_shape()->add_dim()->set_dim_param(any_number);
  for (const int64_t length : shape) tensor.mutable_shape()->add_dim()->set_dim_value(length);
}

Tensor array_of(const onnx::TensorProto& stored, const std::string& path) {
  at::ScalarType type = at::kFloat;
  if (stored.data_type() == onnx::TensorProto::DOUBLE) {
    type = at::kDouble;
  } else if (stored.data_type() != onnx::TensorProto::FLOAT) {
    throw std::runtime_error(
        fmt::format("{}: array {}: expected float or double numbers, found ONNX's type {}; export it again",
                    path, stored.name(), stored.data_type()));
  }
  int64_t count = static_cast<int64_t>(c10::elementSize(type));
  bool fits = true;
  for (const int64_t length : stored.dims()) {
    fits = fits && length >= 0 && !__builtin_mul_overflow(count, length, &count);
  }
  if (!fits || count != static_cast<int64_t>(stored.raw_data().size())) {
    throw std::runtime_error(
        fmt::format("{}: array {}: its shape and its {} bytes do not agree; the file is damaged", path,
                    stored.name(), stored.raw_data().size()));
  }
  const std::vector<int64_t> shape(stored.dims().begin(), stored.dims().end());
  Tensor value = at::empty(shape, type);
  std::memcpy(value.data_ptr(), stored.raw_data().data(), stored.raw_data().size());
  return value;
}

}  // namespace

bool has_onnx() { return true; }

void write_onnx(const std::string& path, const ExportedModel& model) {
  onnx::ModelProto file;
  file.set_ir_version(ir_version);
  file.set_producer_name("bilevel");
  file.set_producer_version(BILEVEL_VERSION);
  onnx::OperatorSetIdProto& set = *file.add_opset_import();
  set.set_domain("");
  set.set_version(operator_set);
  onnx::StringStringEntryProto& property = *file.add_metadata_props();
  property.set_key(description_property);
  property.set_value(model.description.dump());

  onnx::GraphProto& graph = *file.mutable_graph();
  graph.set_name("bilevel");
  for (const NamedArray& array : model.arrays) put_array(graph, array.name, array.value);
  for (const ExportedInput& input : model.inputs) {
    put_value(*graph.add_input(), input.name, input.type, input.shape);
  }
  const torch::jit::Module module = recorded_module(model);
  std::map<std::string, std::string> attributes;
  for (const NamedArray& array : model.arrays) attributes[attribute_name(array.name)] = array.name;
  const at::ScalarType type =
      translate(*module.get_method("forward").graph(), attributes, model.output.name, graph);
  put_value(*graph.add_output(), model.output.name, type, {model.output.width});
  std::string bytes;
  if (!file.SerializeToString(&bytes)) {
    throw std::runtime_error(fmt::format(
        "{}: ONNX's protobuf cannot hold a model of more than 2 GiB; use torchscript or npz", path));
  }
  write_file(path, bytes);
}

ExportedModel read_onnx(const std::string& path) {
  onnx::ModelProto file;
  if (!file.ParseFromString(read_file(path, largest_onnx))) {
    throw std::runtime_error(
        fmt::format("{}: expected a .npz, TorchScript or ONNX file that `bilevel export` wrote, found "
                    "another kind of file",
                    path));
  }
  std::string text;
  for (const onnx::StringStringEntryProto& property : file.metadata_props()) {
    if (property.key() == description_property) text = property.value();
  }
  ExportedModel model;
  model.description = parse_description(path, text);
  std::map<std::string, const onnx::TensorProto*> stored;
  for (const onnx::TensorProto& array : file.graph().initializer()) stored[array.name()] = &array;
  try {
    for (const auto& name : model.description.at("arrays")) {
      const auto array = name.get<std::string>();
      if (stored.count(array) == 0) {
        throw std::runtime_error(fmt::format("{}: it has no array {}; export it again", path, array));
      }
      model.arrays.push_back({array, array_of(*stored.at(array), path)});
    }
  } catch (const Json::exception& error) {
    throw std::runtime_error(fmt::format("{}: is not a model of `bilevel export`: {}", path, error.what()));
  }
  return model;
}

}  // namespace bilevel
#else
#include <fmt/format.h>

#include <stdexcept>

namespace bilevel {

bool has_onnx() { return false; }

void write_onnx(const std::string&, const ExportedModel&) {
  throw std::invalid_argument(
      "format onnx: this build of bilevel has no ONNX; install libonnx-dev and build again, or use "
      "torchscript");
}

ExportedModel read_onnx(const std::string& path) {
  throw std::runtime_error(
      fmt::format("{}: is neither a .npz nor a TorchScript file; this build of bilevel has no ONNX: install "
                  "libonnx-dev and build again",
                  path));
}

}  // namespace bilevel
#endif
