#pragma once
// Labels that are probably wrong in a table, found by a model of how labels go wrong. The true label of a row
// has the probabilities p of softmax regression, and the given label comes from the true one by a noise
// matrix T (noise_matrix.h). The bilevel problem:
//
//     outer:  T, one regulariser and one temperature, by the likelihood of labels that were held out: given
//             labels under p(given) = sum_k p_k T[k, given], and trusted labels under p itself
//     inner:  the regression on the other folds, by the same likelihood
//
// Several such models, one for each regulariser and one whose regression takes every label as right, each
// give a row the posterior q_k ~ p_k T[k, given], with p from the fit that has not seen the row. Reported is
// their mean, weighted by the likelihood of held-out labels under each. Suspects are the rows that maximise
// the expected F1 under these probabilities, of those whose given label is wrong with a probability of at
// least 1/4. The final model is fitted to q as soft labels, with a regulariser and a temperature of its own.

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/core/tensor.h"
#include "bilevel/data/example_set.h"
#include "bilevel/tables/fit_counts.h"
#include "bilevel/tables/table_hooks.h"

namespace bilevel {

struct CleanTableOptions {
  int64_t folds = 5;
  bool standardize = true;
  uint64_t seed = 0;  // of the folds
  void validate(int64_t rows) const;
};

struct CleanTableData {
  ExampleSet train;    // labels as given, some of them wrong
  ExampleSet trusted;  // empty where there are none
  int64_t classes = 0;
};

struct TableModel {
  Tensor weights;               // (columns + 1) x classes in the user's units, the intercept last
  double logarithm = 0;         // of the regulariser, for standardised columns and the sum of the losses
  double temperature = 1;       // what the scores were multiplied by; already in the weights
  double held_out_loss = 0;     // of all rows: see `loss` and `baseline_loss`
  double trusted_loss = 0;      // held out; NaN without trusted rows
  double trusted_accuracy = 0;  // in percent; the same
};

struct CleanTableResult {
  Tensor posterior;               // rows x classes: the probabilities of the true labels
  Tensor wrong;                   // 1 - posterior of the given label
  Tensor suggested;               // int64: the most probable label; of a suspect, other than the given one
  std::vector<int64_t> suspects;  // the most suspect first
  double threshold = 0;           // the smallest probability among them
  double expected_wrong = 0;      // how many labels, the sum of `wrong`
  Tensor noise;                   // classes x classes, the mean of the models'
  double noise_strength = 0;      // of the best model: of T's prior,
  double label_temperature = 1;   // of its probabilities,
  double label_logarithm = 0;     // of its regulariser
  // Mean held-out losses of all labels, as the outer objective has them: under the best noise model, and with
  // every label taken as right. If the second is smaller, the baseline is returned and nothing is suspect.
  double loss = 0, baseline_loss = 0;
  bool kept_baseline = false;
  TableModel model;     // what is returned: the cleaned one, or the baseline
  TableModel baseline;  // every label taken as right, with the best regulariser for that
  FitCounts counts;
  std::vector<std::string> warnings;
};

// Throws std::invalid_argument for labels out of range and for options that the rows do not allow.
CleanTableResult clean_table(const CleanTableData& data, const CleanTableOptions& options,
                             const TableHooks& hooks = {});

// How many of the largest probabilities to flag so that the expected F1 is largest.
int64_t most_expected_f1(const Tensor& sorted_probabilities);

}  // namespace bilevel
