#pragma once
// Softmax regression fitted once without each fold: what it says about the rows of that fold, which it has
// not seen. Fits go on from those of the last call, so that a path of regularisers costs few steps each.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/tables/fit_counts.h"
#include "bilevel/tables/softmax_fit.h"

namespace bilevel {

class CrossFit {
 public:
  // `rows`: scaled (scaled_table.h). `fold`: int64, 0 .. folds-1, or below 0 for rows that are never held
  // out.
  CrossFit(const Tensor& rows, const Tensor& fold, int64_t folds, int64_t classes);

  // X W of every row that some fold holds out, from the fit without that fold; 0 for the other rows.
  // `logarithms` of the penalties on the sum of the losses, one for each column but the last, or such columns
  // x classes.
  Tensor held_out_scores(const SoftmaxTargets& targets, const Tensor& logarithms, double tolerance);
  // The derivative of a loss of these scores by the logarithms, exact where the fits are converged and their
  // targets are soft labels: `by_scores` is the loss's derivative by the scores.
  Tensor derivative(const Tensor& by_scores, double tolerance);

  // The mean of the fits: a start for one on all rows.
  Tensor mean_weights() const;
  const std::vector<Tensor>& weights() const { return weights_; }
  void start_from(const std::vector<Tensor>& weights) { weights_ = weights; }
  const FitCounts& counts() const { return counts_; }
  int64_t columns() const { return rows_.size(1); }
  int64_t classes() const { return classes_; }

 private:
  struct Part {
    Tensor fitted_index, held_index;  // positions
    Tensor fitted, held;              // rows
  };
  Tensor rows_;
  int64_t classes_;
  std::vector<Part> parts_;
  std::vector<Tensor> weights_;
  Tensor logarithms_;  // of the last fits
  FitCounts counts_;
};

// All logarithms alike.
Tensor alike(double logarithm, int64_t columns);

}  // namespace bilevel
