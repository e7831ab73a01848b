#pragma once
// A recorded function as nodes of an ONNX graph. Only where ONNX's protobuf is.

#include <onnx/onnx_pb.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <string>

#include "bilevel/core/tensor.h"

namespace bilevel {

int onnx_type(at::ScalarType type);
void put_array(onnx::GraphProto& graph, const std::string& name, const Tensor& value);

// Adds a node for each operation of `recorded`, whose inputs are already in the graph under their own names
// and whose attributes are arrays under the names given. The result is called `output`; its type is returned.
// Throws std::logic_error naming an operation that has no translation.
at::ScalarType translate(const torch::jit::Graph& recorded,
                         const std::map<std::string, std::string>& attributes, const std::string& output,
                         onnx::GraphProto& graph);

}  // namespace bilevel
