#pragma once
// An exported model's function as TorchScript: recorded by running it once on two examples, with the arrays
// as the module's own.

#include <torch/csrc/jit/api/module.h>

#include <string>

#include "bilevel/export/exported_model.h"

namespace bilevel {

// Its `forward` takes the model's inputs in their order.
torch::jit::Module recorded_module(const ExportedModel& model);
// What an array is called as an attribute: letters, digits and _ alone.
std::string attribute_name(const std::string& array);

}  // namespace bilevel
