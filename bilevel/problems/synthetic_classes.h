#pragma once
// Synthetic classification data: one Gaussian cloud per class. Drawn in double on the CPU and converted once,
// so that every dtype and device sees the same examples up to rounding.

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel {

// Unlike an ExampleSet always dense, and on any device.
struct LabelledExamples {
  Tensor features;  // examples x features
  Tensor labels;    // int64, 0 .. classes-1

  int64_t size() const { return labels.size(0); }
  LabelledExamples to(const at::TensorOptions& options) const;  // features converted, both moved
};

struct GaussianClassesOptions {
  int64_t classes = 5;
  int64_t features = 10;
  double separation = 1;   // standard deviation of a class mean's entries; within a class it is 1
  bool unit_rows = false;  // scale every example to length one, as text features are

  void validate() const;
};

// Training and validation sets are two draws from the same clouds, told apart by `name`. Classes take turns,
// so the set is balanced. Features are double, on the CPU.
LabelledExamples draw_gaussian_classes(const GaussianClassesOptions& options, int64_t count, uint64_t seed,
                                       const char* name);

}  // namespace bilevel
