#pragma once
// Where a job computes and in which precision.

#include <ATen/core/Tensor.h>

#include <string>

#include "bilevel/fields/fields.h"

namespace bilevel {

class RunContext;

struct ComputeOptions {
  std::string device = "cpu";
  std::string dtype = "double";
  int threads = 0;   // 0 = all cores
  bool tf32 = true;  // on a GPU, in float: convolutions round what they multiply, as PyTorch's do
  static const Fields<ComputeOptions>& fields();
};

// Throws OptionError where the device cannot be had.
at::TensorOptions tensor_options(const ComputeOptions& options, const RunContext& context);
// Sets the threads, warns of what makes this machine slow, and returns tensor_options().
at::TensorOptions apply(const ComputeOptions& options, const RunContext& context);

}  // namespace bilevel
