#pragma once
// How labels go wrong: T[k, l] is the probability that an example of class k was given label l. It is found
// from predictions of a model that has not seen the examples' labels, by the EM algorithm, with a prior that
// draws T towards noise that is the same for all classes, (1 - e) on the diagonal and e / (c - 1) beside it.
// How strongly, is chosen by what predicts given labels of other folds best: with structure in the noise and
// enough rows the prior gives way, without it c (c - 1) numbers are not fitted where one will do.

#include <cstdint>

#include "bilevel/core/tensor.h"

namespace bilevel {

// Classes x classes.
Tensor even_noise(int64_t classes, double share);

struct NoiseEvidence {
  Tensor probabilities;  // of the true classes, rows x classes, cross-fitted
  Tensor given;          // int64
};

// The T of the largest posterior density near `start`; `strength` is the prior's weight in examples of each
// class. Its diagonal stays at `least_right` or above: without trusted rows a half, or the classes could
// exchange their names.
Tensor estimate_noise(const NoiseEvidence& evidence, const Tensor& start, double strength,
                      double least_right = 0);

// -log p(given label), one per row.
Tensor given_label_losses(const NoiseEvidence& evidence, const Tensor& noise);

// p(true class | features, given label): rows x classes.
Tensor true_label_posterior(const NoiseEvidence& evidence, const Tensor& noise);

struct NoiseStrength {
  double strength = 0;
  double loss = 0;     // the sum of `losses`
  Tensor losses = {};  // one per row: -log p(given label), T being estimated on the other folds
};
NoiseStrength choose_noise_strength(const NoiseEvidence& evidence, const Tensor& start, const Tensor& fold,
                                    int64_t folds, double least_right = 0);

}  // namespace bilevel
