#include "bilevel/export/recorded_module.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <cctype>
#include <utility>
#include <vector>

namespace bilevel {
namespace {

constexpr const char* class_name = "__torch__.bilevel.Model";
constexpr int64_t recorded_examples = 2;

// What training on in PyTorch should leave as it is: running statistics, and how inputs are prepared.
bool is_fixed(const std::string& array) {
  return array.starts_with("input.") || array.ends_with(".mean") || array.ends_with(".variance");
}

Tensor example_of(const ExportedInput& input) {
  std::vector<int64_t> shape = {recorded_examples};
  shape.insert(shape.end(), input.shape.begin(), input.shape.end());
  return at::zeros(shape, input.type);
}

}  // namespace

std::string attribute_name(const std::string& array) {
  std::string name = "a_";
  for (const char letter : array) {
    name += std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  }
  return name;
}

torch::jit::Module recorded_module(const ExportedModel& model) {
  const at::NoGradGuard no_graph;
  torch::jit::Module module{c10::QualifiedName(class_name)};
  module.register_attribute("training", c10::BoolType::get(), false);
  std::vector<Tensor> arrays;
  for (const NamedArray& array : model.arrays) {
    arrays.push_back(array.value.detach().to(at::kCPU).contiguous());
    module.register_parameter(attribute_name(array.name), arrays.back(), /*is_buffer=*/is_fixed(array.name));
  }
  torch::jit::Stack inputs;
  std::vector<std::string> names;
  for (const ExportedInput& input : model.inputs) {
    inputs.emplace_back(example_of(input));
    names.push_back(input.name);
  }
  const auto recorded = torch::jit::tracer::trace(
      std::move(inputs),
      [&](const torch::jit::Stack& given) {
        std::vector<Tensor> tensors;
        for (const c10::IValue& value : given) tensors.push_back(value.toTensor());
        return torch::jit::Stack{model.function(arrays, tensors)};
      },
      [](const Tensor&) { return std::string(); }, /*strict=*/true, /*force_outplace=*/false, &module, names);
  const c10::QualifiedName name(*module.type()->name(), "forward");
  module.type()->addMethod(
      module._ivalue()->compilation_unit()->create_function(name, recorded.first->graph));
  return module;
}

}  // namespace bilevel
