#include "bilevel/problems/cleaning_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bilevel/problems/hyper_cleaning.h"
#include "bilevel/problems/linear_scores.h"
#include "bilevel/problems/weighted_softmax.h"

namespace bilevel {
namespace {

constexpr int64_t rows_at_a_time = 10000;

// W is classes x features, flat row by row, in both problems.
Tensor linear_model_scores(const Tensor& w, const ExampleSet& set, int64_t classes) {
  const Tensor matrix = w.detach().view({classes, set.features.columns()}).t();
  if (set.features.is_sparse()) return linear_scores(labelled_rows(set).features, {}, matrix.contiguous());
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < set.size(); begin += rows_at_a_time) {
    const int64_t end = std::min(begin + rows_at_a_time, set.size());
    parts.push_back(set.features.dense.slice(0, begin, end).to(w.options()).mm(matrix).to(at::kCPU));
  }
  return at::cat(parts);
}

}  // namespace

CleaningModel make_linear_cleaning(const CleaningSets& sets, double regularization,
                                   const at::TensorOptions& tensors) {
  CleaningModel model;
  model.convex = true;
  if (tensors.device().is_cpu()) {
    model.problem =
        std::make_unique<WeightedSoftmax>(labelled_rows(sets.train), labelled_rows(sets.valid), sets.classes,
                                          regularization, sets.replaced, sets.wrong);
  } else {
    model.problem = std::make_unique<HyperCleaning>(sets.data(), regularization, tensors);
  }
  model.scores = [classes = sets.classes](const Tensor& w, const ExampleSet& set) {
    return linear_model_scores(w, set, classes);
  };
  return model;
}

CleaningModel make_cnn_cleaning(const CleaningSets& sets, const CnnOptions& options,
                                const at::TensorOptions& tensors) {
  if (sets.bias) throw std::invalid_argument("cnn: bias = true: its images take no column of ones");
  auto problem = std::make_unique<CnnCleaning>(sets.data(), sets.image, options, tensors);
  const CnnCleaning* cnn = problem.get();
  return {std::move(problem),
          [cnn](const Tensor& w, const ExampleSet& set) {
            return cnn->scores(set.features.dense, w).to(at::kCPU);
          },
          false};
}

}  // namespace bilevel
