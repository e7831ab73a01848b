#pragma once
// Regularisers of softmax regression on a table, by the loss of rows that were held out:
//
//     outer:  x_j, the logarithm of column j's penalty: the mean cross entropy of held-out rows
//     inner:  the regression on the other folds, solved to a tolerance
//
// First one penalty for all columns, by a search along its logarithm, with a weak prior that matters where
// there are few rows: the baseline. From there one for each
// column, by the exact implicit gradient, with a prior that draws the logarithms towards the common one,
// since folds can be overfitted by as many numbers as there are columns. Whether they are worth it is asked
// of rows that neither has seen: the whole search is repeated without each part of the rows (nested
// cross-validation). They are returned where they gain more there than the gain's standard error.

#include <cstdint>

#include "bilevel/core/tensor.h"
#include "bilevel/data/feature_files.h"
#include "bilevel/tables/cross_fit.h"
#include "bilevel/tables/table_hooks.h"

namespace bilevel {

struct TuneTableOptions {
  int64_t folds = 5;  // where there are no validation rows
  bool standardize = true;
  bool per_column = true;  // false: the one penalty alone
  uint64_t seed = 0;       // of the folds
  void validate(int64_t rows) const;
};

struct TuneTableData {
  Features train;
  Tensor labels;   // int64, 0 .. classes-1
  Features valid;  // no rows: the training rows are held out in turn
  Tensor valid_labels;
  int64_t classes = 0;
};

struct TunedTable {
  Tensor logarithms;         // of the penalties, one for each column, for the sum of the losses
  Tensor weights;            // (columns + 1) x classes in the user's units, the intercept last
  double held_out_loss = 0;  // what was minimised, so it flatters
  double held_out_accuracy = 0;
};

struct TuneTableResult {
  TunedTable single;      // one penalty
  TunedTable per_column;  // not defined without per_column
  // What one penalty for each column gains in the mean loss, and its standard error: of rows that were not
  // searched on, or, if it is not even clear there, of those that were.
  double gain = 0, gain_error = 0;
  bool nested = false;  // of rows that were not searched on
  bool kept_single = true;
  int64_t outer_gradients = 0;
  FitCounts counts;
  const TunedTable& returned() const { return kept_single ? single : per_column; }
};

// The final models are fitted to all training rows. Throws std::invalid_argument for labels out of range and
// for options that the rows do not allow.
TuneTableResult tune_table(const TuneTableData& data, const TuneTableOptions& options,
                           const TableHooks& hooks = {});

}  // namespace bilevel
