#pragma once
// Examples for the closed forms of softmax regression: features, dense or sparse, with a label for each.

#include <cstdint>

#include "bilevel/core/batch.h"
#include "bilevel/core/problem.h"
#include "bilevel/core/tensor.h"
#include "bilevel/problems/feature_matrix.h"
#include "bilevel/problems/softmax_point.h"

namespace bilevel {

// Unlike an ExampleSet with features laid out for these closed forms.
struct LabelledRows {
  FeatureMatrix features;
  Tensor labels;  // int64 on the CPU, 0 .. classes-1

  int64_t size() const { return features.rows(); }
  // Throws std::invalid_argument naming the set where labels are missing, too many, of another type or out of
  // range, or a feature is not finite.
  void validate(int64_t classes, const char* set) const;
};

// Both sets, and that they have the same features and type.
void validate_sets(const LabelledRows& train, const LabelledRows& valid, int64_t classes);

// How many percent of the examples have their largest score at their label; `matrix` is features x classes.
double accuracy_percent(const LabelledRows& rows, const Tensor& matrix);
// The batch's mean cross entropy, differentiable in the matrix.
Tensor mean_cross_entropy(const LabelledRows& rows, const Tensor& matrix, const Batch& batch);
// The same as an outer loss without x in it, with its gradients, in closed form and one pass.
OuterGradients mean_outer_gradients(const LabelledRows& rows, const WeightLayout& layout, const Tensor& w,
                                    const Tensor& x, const Batch& batch);

}  // namespace bilevel
