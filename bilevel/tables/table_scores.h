#pragma once
// What a model in the user's units says about a table, and how well it does there.

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"

namespace bilevel {

// X W + b; `weights` is (columns + 1) x classes, the intercept last. Rows are taken as they are.
Tensor table_scores(const Features& rows, const Tensor& weights);

struct TableScores {
  double accuracy = 0;  // in percent
  double loss = 0;      // mean cross entropy
};
TableScores score_table(const Features& rows, const Tensor& labels, const Tensor& weights);

struct NumberScores {
  double loss = 0;           // mean square of the differences, in the square of the user's unit
  double rmse = 0;           // its root
  double determination = 0;  // R2: 1 - loss / variance of the targets; NaN where they are all the same
};
NumberScores score_numbers(const Features& rows, const Tensor& targets, const Tensor& weights);

}  // namespace bilevel
