#pragma once
// A cleaning job's model: the bilevel problem that learns the examples' weights, and the model's scores on
// any set of the job.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "bilevel/core/problem.h"
#include "bilevel/core/tensor.h"
#include "bilevel/problems/cleaning_sets.h"
#include "bilevel/problems/cnn_cleaning.h"

namespace bilevel {

struct CleaningModel {
  std::unique_ptr<Problem> problem;
  // examples x classes, on the CPU.
  std::function<Tensor(const Tensor& w, const ExampleSet& set)> scores;
  bool convex = false;  // the inner problem has one solution, and its curvature gives a safe rate
};

// Softmax regression: the closed form on the CPU, automatic differentiation on other devices, where sparse
// features are refused.
CleaningModel make_linear_cleaning(const CleaningSets& sets, double regularization,
                                   const at::TensorOptions& tensors);
// The small network; the sets must be images without a bias column.
CleaningModel make_cnn_cleaning(const CleaningSets& sets, const CnnOptions& options,
                                const at::TensorOptions& tensors);

}  // namespace bilevel
