#pragma once
// How tasks of a table should pull at each other, by the loss of held-out rows:
//
//     outer:  C and rho: the mean cross entropy of held-out rows (held_out_tasks.h)
//     inner:  the coupled regressions of the other folds, solved by Newton's method (coupled_fit.h)
//
// A table of few rows is dealt into folds three times, and its losses are the means.
//
// First all pairs alike: one strength c, from tasks on their own (c = 0) to one model for all (c large), one
// rho, and how much of c the intercepts feel. A few hundred rows do not tell these three numbers well, and so
// the mean of the models is taken, each weighted by the likelihood of held-out rows under it and by a weak
// prior of rho. From the best of them one strength for each pair, by the exact implicit gradient, with a
// prior that draws them towards the common one; they are returned where they gain clearly on rows that the
// search for them has not seen.

#include <cstdint>

#include "bilevel/core/tensor.h"
#include "bilevel/data/example_set.h"
#include "bilevel/tables/fit_counts.h"
#include "bilevel/tables/table_hooks.h"

namespace bilevel {

struct InteractTableOptions {
  int64_t folds = 5;  // where there are no validation rows
  bool standardize = true;
  uint64_t seed = 0;  // of the folds
  void validate(int64_t rows) const;
};

struct InteractTableData {
  ExampleSet train, valid;  // no valid: the training rows are held out in turn
  Tensor task, valid_task;  // int64, 0 .. tasks-1, one per example
  int64_t tasks = 0, classes = 0;
};

struct TaskTable {
  Tensor coupling;               // C for standardised columns and the sum of the losses
  double regularizer = 0;        // rho
  Tensor weights;                // tasks x (columns + 1) x classes in the user's units, the intercept last
  double held_out_loss = 0;      // the mean of what was minimised, so it flatters
  double held_out_accuracy = 0;  // percent
};

struct InteractTableResult {
  TaskTable learned, independent, pooled;
  bool per_pair = false;        // `learned` has a strength for each pair, not the mean over common ones
  bool searched_pairs = false;  // there is more than one pair
  // What a strength for each pair gains in the mean loss of rows that were not searched on, and its standard
  // error.
  double gain = 0, gain_error = 0;
  int64_t averaged = 0;  // models that `learned` is the mean of; 0: `per_pair`
  int64_t outer_gradients = 0;
  FitCounts counts;
};

// The final models are fitted to all training rows. Throws std::invalid_argument for labels and tasks out of
// range and for options that the rows do not allow.
InteractTableResult interact_table(const InteractTableData& data, const InteractTableOptions& options,
                                   const TableHooks& hooks = {});

// Whether all that interact_table holds is small enough for the memory: the Hessians of all tasks and folds,
// the strengths of pairs, and the rows, with the scores and losses that folds and models have of each.
// `rows`: of training and validation.
bool is_small_enough_for_newton(int64_t rows, int64_t tasks, int64_t columns, int64_t classes, int64_t folds);

}  // namespace bilevel
