#pragma once
// A model that leaves the program: named arrays, a description as JSON, and the function that both make. A
// format stores the first two, and where it can, the function as well.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/npz.h"
#include "bilevel/run/json.h"

namespace bilevel {

struct ExportedInput {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;  // of one example; the examples come before it
  std::string holds = {};      // a sentence
};
// One row for each example.
struct ExportedOutput {
  std::string name;
  int64_t width = 0;
  std::string holds;
};
std::string exported_type(at::ScalarType type);  // float32, float64, int64

// From the arrays, in their order, and a tensor for each input: one row of numbers for each example. It must
// not read how many examples there are, because it is recorded once and used on any number.
using ExportedFunction =
    std::function<Tensor(const std::vector<Tensor>& arrays, const std::vector<Tensor>& inputs)>;

struct ExportedModel {
  Json description;
  std::vector<NamedArray> arrays;
  // Of a model that is to be written.
  std::vector<ExportedInput> inputs = {};
  ExportedOutput output = {};
  ExportedFunction function = {};
};

inline constexpr const char* description_name = "description";   // of the array in a .npz file
inline constexpr const char* description_file = "bilevel.json";  // in a TorchScript file
inline constexpr const char* description_property = "bilevel";   // of an ONNX model

const std::vector<std::string>& export_formats();       // npz, torchscript, onnx
std::string ending_of_format(const std::string& name);  // .npz, .pt, .onnx
bool has_onnx();                                        // whether the library was built with ONNX's protobuf

// Throws std::invalid_argument for a format that this build does not have, std::runtime_error where the file
// cannot be written.
void write_exported(const std::string& path, const std::string& format, const ExportedModel& model);
// By what the file holds, whatever it is called. Throws std::runtime_error naming the file: one that is
// damaged, or that `export` did not write.
ExportedModel read_exported(const std::string& path);

}  // namespace bilevel
