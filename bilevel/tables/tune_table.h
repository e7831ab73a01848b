#pragma once
// Regularisers of softmax regression, or of ridge regression, on a table, by the loss of held-out rows:
//
//     outer:  x_j, the logarithm of column j's penalty: the mean loss of held-out rows (held_out_loss.h)
//     inner:  the regression on the other folds, solved to a tolerance or in closed form
//
// First one penalty for all columns, by a search along its logarithm, with a weak prior that matters where
// there are few rows: the baseline. From there one for each
// column, or group of columns, or column and class, by the exact implicit gradient, with a prior that draws
// the logarithms towards the common one, since folds can be overfitted by as many numbers as there are
// columns. Whether they are worth it is asked of rows that neither has seen: the whole search is repeated
// without each part of the rows (nested cross-validation). They are returned where they gain more there than
// two of the gain's standard errors.
//
// With the squared loss the lasso and the adaptive lasso come before: their penalties follow from one number,
// as the one penalty does, and cannot overfit the folds as one per column can. The mean of the three models,
// each weighted by the likelihood of held-out rows under it (pseudo-BMA+: Yao et al. 2018), is returned where
// it has a smaller held-out loss than the one penalty.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/example_set.h"
#include "bilevel/tables/fit_counts.h"
#include "bilevel/tables/table_hooks.h"
#include "bilevel/tables/table_loss.h"

namespace bilevel {

struct TuneTableOptions {
  int64_t folds = 5;  // where there are no validation rows
  bool standardize = true;
  bool per_column = true;  // false: the one penalty alone
  bool per_class = false;  // a penalty for each column and class
  TableLoss loss = TableLoss::cross_entropy;
  uint64_t seed = 0;  // of the folds
  void validate(int64_t rows) const;
};

struct TuneTableData {
  ExampleSet train;     // with the squared loss, labels are the targets
  ExampleSet valid;     // empty: the training rows are held out in turn
  int64_t classes = 0;  // 1 with the squared loss
  Tensor groups = {};   // int64, one for each column: columns of a group share a penalty; not defined = none
};

struct TunedTable {
  Tensor logarithms;  // of the penalties for the sum of the losses, one for each column, or columns x classes
  Tensor weights;     // (columns + 1) x classes in the user's units, the intercept last
  double held_out_loss = 0;   // the mean of what was minimised, so it flatters
  double held_out_score = 0;  // accuracy in percent; with the squared loss the coefficient of determination
};

struct TuneTableResult {
  TunedTable single;      // one penalty
  TunedTable freed;       // one for each column, or group, or class: not defined where `kept_single`
  bool searched = false;  // there is more than one to free
  bool by_class = false;  // each class has its own
  // With the squared loss: of the one penalty, the lasso and the adaptive lasso. `averaged`: `freed` is their
  // mean, weighted by these, and its penalties are those of the mean prior variance.
  std::vector<double> shares;
  bool averaged = false;
  // What these penalties gain in the mean loss of rows that were not searched on, and its standard error;
  // where `averaged`, of the rows that the shares come from.
  double gain = 0, gain_error = 0;
  bool kept_single = true;
  int64_t outer_gradients = 0;
  FitCounts counts;
  const TunedTable& returned() const { return kept_single ? single : freed; }
};

// The final models are fitted to all training rows. Throws std::invalid_argument for labels out of range and
// for options that the rows do not allow.
TuneTableResult tune_table(const TuneTableData& data, const TuneTableOptions& options,
                           const TableHooks& hooks = {});

}  // namespace bilevel
