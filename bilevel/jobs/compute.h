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
  int threads = 0;  // 0 = all cores
  static const Fields<ComputeOptions>& fields();
};

// Sets the threads, warns of what makes this machine slow, and returns dtype and device. Throws OptionError
// where they cannot be had.
at::TensorOptions apply(const ComputeOptions& options, const RunContext& context);

}  // namespace bilevel
