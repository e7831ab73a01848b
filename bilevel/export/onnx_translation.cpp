#ifdef BILEVEL_HAS_ONNX
#include "bilevel/export/onnx_translation.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bilevel {
namespace {

using torch::jit::Node;
using torch::jit::Value;
using Names = std::vector<std::string>;

class Translation {
 public:
  Translation(const std::map<std::string, std::string>& attributes, onnx::GraphProto& graph)
      : attributes_(attributes), graph_(graph) {}

  void name(const Value* value, std::string given) { tensors_[value] = std::move(given); }
  const std::string& tensor(const Value* value) const {
    const auto found = tensors_.find(value);
    if (found == tensors_.end()) throw std::logic_error("export: a value that is no tensor is used as one");
    return found->second;
  }
  void add(const Node& node);

 private:
  // ---- what an operation was recorded with ----
  const std::string& tensor(const Node& node, size_t i) const { return tensor(node.inputs().at(i)); }
  c10::IValue constant(const Node& node, size_t i) const {
    const auto found = constants_.find(node.inputs().at(i));
    if (found == constants_.end()) {
      throw std::logic_error(fmt::format("export: {}: argument {} is not known when it is recorded",
                                         node.kind().toQualString(), i));
    }
    return found->second;
  }
  bool is_none(const Node& node, size_t i) const {
    const auto found = constants_.find(node.inputs().at(i));
    return found != constants_.end() && found->second.isNone();
  }
  int64_t whole(const Node& node, size_t i) const { return constant(node, i).toInt(); }
  bool flag(const Node& node, size_t i) const { return constant(node, i).toBool(); }
  std::vector<int64_t> wholes(const Node& node, size_t i) const { return constant(node, i).toIntVector(); }
  // A length for height and width each; one for both where one was given.
  std::vector<int64_t> pair(const Node& node, size_t i) const {
    std::vector<int64_t> lengths = wholes(node, i);
    if (lengths.size() == 1) lengths.push_back(lengths[0]);
    return lengths;
  }
  static int64_t dimensions(const Node& node, size_t i) {
    const auto type = node.inputs().at(i)->type()->cast<c10::TensorType>();
    if (!type || !type->dim()) throw std::logic_error("export: a tensor of unknown dimensions");
    return static_cast<int64_t>(*type->dim());
  }
  static at::ScalarType type_of(const Value* value) {
    const auto type = value->type()->cast<c10::TensorType>();
    if (!type || !type->scalarType()) throw std::logic_error("export: a tensor of unknown type");
    return *type->scalarType();
  }

  // ---- what ONNX gets ----
  onnx::NodeProto& put(const std::string& operation, const Names& inputs, const std::string& output) {
    onnx::NodeProto& node = *graph_.add_node();
    node.set_op_type(operation);
    node.set_name(fmt::format("{}_{}", operation, graph_.node_size()));
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }
  // With a result that is used here alone.
  std::string between(const std::string& operation, const Names& inputs) {
    const std::string result = fresh();
    put(operation, inputs, result);
    return result;
  }
  std::string fresh() { return fmt::format("t{}", ++count_); }
  std::string array(const Tensor& value) {
    const std::string result = fmt::format("c{}", ++count_);
    put_array(graph_, result, value);
    return result;
  }
  std::string array(const std::vector<int64_t>& values) { return array(at::tensor(values, at::kLong)); }
  static void attribute(onnx::NodeProto& node, const char* name, int64_t value) {
    onnx::AttributeProto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(value);
  }
  static void attribute(onnx::NodeProto& node, const char* name, double value) {
    onnx::AttributeProto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::FLOAT);
    a.set_f(static_cast<float>(value));
  }
  static void attribute(onnx::NodeProto& node, const char* name, const std::vector<int64_t>& values) {
    onnx::AttributeProto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::INTS);
    for (const int64_t value : values) a.add_ints(value);
  }
  static std::vector<int64_t> on_both_sides(const std::vector<int64_t>& padding) {
    return {padding[0], padding[1], padding[0], padding[1]};
  }

  void convolve(const Node& node, const std::string& result) {
    const bool short_form = std::string(node.kind().toUnqualString()) == "conv2d";
    Names inputs = {tensor(node, 0), tensor(node, 1)};
    if (!is_none(node, 2)) inputs.push_back(tensor(node, 2));
    onnx::NodeProto& made = put("Conv", inputs, result);
    attribute(made, "strides", pair(node, 3));
    attribute(made, "pads", on_both_sides(pair(node, 4)));
    attribute(made, "dilations", pair(node, 5));
    attribute(made, "group", whole(node, short_form ? 6 : 8));
  }
  void normalize(const Node& node, const std::string& result) {
    const double epsilon = constant(node, 7).toDouble();
    if (flag(node, 5)) return normalize_by_batch(node, epsilon, result);
    onnx::NodeProto& made =
        put("BatchNormalization",
            {tensor(node, 0), tensor(node, 1), tensor(node, 2), tensor(node, 3), tensor(node, 4)}, result);
    attribute(made, "epsilon", epsilon);
  }
  // By the mean and the variance of the examples themselves.
  void normalize_by_batch(const Node& node, double epsilon, const std::string& result) {
    const at::ScalarType type = type_of(node.inputs().at(0));
    const auto mean_of = [&](const std::string& x) {
      const std::string mean = fresh();
      onnx::NodeProto& made = put("ReduceMean", {x}, mean);
      attribute(made, "axes", std::vector<int64_t>{0, 2, 3});
      attribute(made, "keepdims", int64_t{1});
      return mean;
    };
    const std::string centred = between("Sub", {tensor(node, 0), mean_of(tensor(node, 0))});
    const std::string variance = mean_of(between("Mul", {centred, centred}));
    const std::string deviation =
        between("Sqrt", {between("Add", {variance, array(at::full({1}, epsilon, type))})});
    if (is_none(node, 1)) {
      put("Div", {centred, deviation}, result);
      return;
    }
    const std::string by_channel = array(std::vector<int64_t>{1, -1, 1, 1});
    const std::string scale = between("Reshape", {tensor(node, 1), by_channel});
    const std::string shift = between("Reshape", {tensor(node, 2), by_channel});
    put("Add", {between("Mul", {between("Div", {centred, deviation}), scale}), shift}, result);
  }
  void pool(const Node& node, const std::string& operation, const std::string& result) {
    const bool mean = operation == "AveragePool";
    onnx::NodeProto& made = put(operation, {tensor(node, 0)}, result);
    const std::vector<int64_t> kernel = pair(node, 1), stride = pair(node, 2);
    attribute(made, "kernel_shape", kernel);
    attribute(made, "strides", stride.empty() ? kernel : stride);
    attribute(made, "pads", on_both_sides(pair(node, 3)));
    attribute(made, "ceil_mode", int64_t{flag(node, mean ? 4 : 5)});
    if (!mean) return;
    // Without padding the two ways to count are one here. ONNX Runtime counts what a window of the ceil mode
    // has beyond the picture as padding; PyTorch does not.
    const std::vector<int64_t> padding = pair(node, 3);
    const bool is_padded = padding[0] > 0 || padding[1] > 0;
    attribute(made, "count_include_pad", int64_t{is_padded && flag(node, 5)});
  }
  void sum_or_difference(const Node& node, const std::string& operation, const std::string& result) {
    if (constant(node, 2).toScalar().toDouble() != 1) throw std::logic_error("export: a sum with a factor");
    put(operation, {tensor(node, 0), tensor(node, 1)}, result);
  }
  void slice(const Node& node, const std::string& result) {
    const int64_t start = is_none(node, 2) ? 0 : whole(node, 2);
    const int64_t end = is_none(node, 3) ? std::numeric_limits<int64_t>::max() : whole(node, 3);
    put("Slice",
        {tensor(node, 0), array(std::vector<int64_t>{start}), array(std::vector<int64_t>{end}),
         array(std::vector<int64_t>{whole(node, 1)}), array(std::vector<int64_t>{whole(node, 4)})},
        result);
  }
  void pad(const Node& node, const std::string& result) {
    // Of the last dimension first, before and behind it; ONNX wants all befores, then all behinds.
    const std::vector<int64_t> given = wholes(node, 1);
    const auto rank = static_cast<size_t>(dimensions(node, 0));
    std::vector<int64_t> pads(2 * rank, 0);
    for (size_t i = 0; 2 * i + 1 < given.size(); ++i) {
      pads[rank - 1 - i] = given[2 * i];
      pads[2 * rank - 1 - i] = given[2 * i + 1];
    }
    const double value = constant(node, 2).toScalar().toDouble();
    put("Pad", {tensor(node, 0), array(pads), array(at::full({}, value, type_of(node.inputs().at(0))))},
        result);
  }
  void zeros(const Node& node, const std::string& result) {
    onnx::NodeProto& made = put("ConstantOfShape", {between("Shape", {tensor(node, 0)})}, result);
    onnx::AttributeProto& value = *made.add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    onnx::GraphProto holder;
    put_array(holder, "", at::zeros({1}, type_of(node.inputs().at(0))));
    *value.mutable_t() = holder.initializer(0);
  }
  void mean(const Node& node, const std::string& result) {
    onnx::NodeProto& made = put("ReduceMean", {tensor(node, 0)}, result);
    attribute(made, "axes", wholes(node, 1));
    attribute(made, "keepdims", int64_t{flag(node, 2)});
  }
  void linear(const std::string& x, const std::string& matrix, const std::string& bias, bool transposed,
              const std::string& result) {
    attribute(put("Gemm", {x, matrix, bias}, result), "transB", int64_t{transposed});
  }

  const std::map<std::string, std::string>& attributes_;
  onnx::GraphProto& graph_;
  std::unordered_map<const Value*, std::string> tensors_;
  std::unordered_map<const Value*, Names> lists_;
  std::unordered_map<const Value*, c10::IValue> constants_;
  int64_t count_ = 0;
};

void Translation::add(const Node& node) {
  const std::string kind = node.kind().toQualString();
  const Value* output = node.outputs().at(0);
  if (kind == "prim::Constant") {
    const c10::IValue value = *torch::jit::toIValue(output);
    if (value.isTensor()) name(output, array(value.toTensor()));
    constants_[output] = value;
    return;
  }
  if (kind == "prim::GetAttr") {
    name(output, attributes_.at(node.s(c10::attr::name)));
    return;
  }
  if (kind == "prim::ListConstruct") {
    const auto inputs = node.inputs();
    const bool of_tensors = std::any_of(inputs.begin(), inputs.end(),
                                        [&](const Value* value) { return tensors_.count(value) > 0; });
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (of_tensors) {
        lists_[output].push_back(tensor(node, i));
      } else {
        numbers.push_back(whole(node, i));
      }
    }
    if (!of_tensors) constants_[output] = numbers;
    return;
  }
  const std::string result = fresh();
  name(output, result);
  const std::string operation = node.kind().toUnqualString();
  if (operation == "_convolution" || operation == "convolution" || operation == "conv2d") {
    convolve(node, result);
  } else if (operation == "batch_norm") {
    normalize(node, result);
  } else if (operation == "relu") {
    put("Relu", {tensor(node, 0)}, result);
  } else if (operation == "avg_pool2d") {
    pool(node, "AveragePool", result);
  } else if (operation == "max_pool2d") {
    pool(node, "MaxPool", result);
  } else if (operation == "mean") {
    mean(node, result);
  } else if (operation == "flatten") {
    attribute(put("Flatten", {tensor(node, 0)}, result), "axis", whole(node, 1));
  } else if (operation == "linear") {
    linear(tensor(node, 0), tensor(node, 1), tensor(node, 2), true, result);
  } else if (operation == "addmm") {
    linear(tensor(node, 1), tensor(node, 2), tensor(node, 0), false, result);
  } else if (operation == "t") {
    attribute(put("Transpose", {tensor(node, 0)}, result), "perm", std::vector<int64_t>{1, 0});
  } else if (operation == "matmul" || operation == "mm" || operation == "bmm") {
    put("MatMul", {tensor(node, 0), tensor(node, 1)}, result);
  } else if (operation == "add") {
    sum_or_difference(node, "Add", result);
  } else if (operation == "sub") {
    sum_or_difference(node, "Sub", result);
  } else if (operation == "div") {
    put("Div", {tensor(node, 0), tensor(node, 1)}, result);
  } else if (operation == "cat") {
    attribute(put("Concat", lists_.at(node.inputs().at(0)), result), "axis", whole(node, 1));
  } else if (operation == "slice") {
    slice(node, result);
  } else if (operation == "constant_pad_nd") {
    pad(node, result);
  } else if (operation == "zeros_like") {
    zeros(node, result);
  } else if (operation == "reshape" || operation == "view") {
    put("Reshape", {tensor(node, 0), array(wholes(node, 1))}, result);
  } else if (operation == "index_select") {
    attribute(put("Gather", {tensor(node, 0), tensor(node, 2)}, result), "axis", whole(node, 1));
  } else if (operation == "unsqueeze") {
    put("Unsqueeze", {tensor(node, 0), array(std::vector<int64_t>{whole(node, 1)})}, result);
  } else if (operation == "squeeze") {
    put("Squeeze", {tensor(node, 0), array(std::vector<int64_t>{whole(node, 1)})}, result);
  } else {
    throw std::logic_error(fmt::format("export: {} has no translation to ONNX", kind));
  }
}

}  // namespace

int onnx_type(at::ScalarType type) {
  if (type == at::kFloat) return onnx::TensorProto::FLOAT;
  if (type == at::kDouble) return onnx::TensorProto::DOUBLE;
  if (type == at::kLong) return onnx::TensorProto::INT64;
  throw std::logic_error(fmt::format("export: {} has no translation to ONNX", c10::toString(type)));
}

void put_array(onnx::GraphProto& graph, const std::string& name, const Tensor& value) {
  onnx::TensorProto& stored = *graph.add_initializer();
  const Tensor plain = value.detach().to(at::kCPU).contiguous();
  stored.set_name(name);
  stored.set_data_type(onnx_type(plain.scalar_type()));
  for (const int64_t length : plain.sizes()) stored.add_dims(length);
  stored.set_raw_data(std::string(static_cast<const char*>(plain.data_ptr()), plain.nbytes()));
}

at::ScalarType translate(const torch::jit::Graph& recorded,
                         const std::map<std::string, std::string>& attributes, const std::string& output,
                         onnx::GraphProto& graph) {
  Translation translation(attributes, graph);
  const auto inputs = recorded.inputs();
  for (size_t i = 1; i < inputs.size(); ++i) {  // the first is the module itself
    translation.name(inputs[i], graph.input(static_cast<int>(i) - 1).name());
  }
  for (const Node* node : recorded.nodes()) translation.add(*node);
  const Value* result = recorded.outputs().at(0);
  onnx::NodeProto& last = *graph.add_node();
  last.set_op_type("Identity");
  last.set_name("output");
  last.add_input(translation.tensor(result));
  last.add_output(output);
  return *result->type()->expect<c10::TensorType>()->scalarType();
}

}  // namespace bilevel
#endif
