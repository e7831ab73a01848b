#pragma once
// The data of hyper-cleaning: a training set with some bad labels and a clean validation set, drawn or read
// from the user's files.

#include <cstdint>
#include <string>

#include "bilevel/core/tensor.h"
#include "bilevel/problems/synthetic_classes.h"

namespace bilevel {

struct CleaningData {
  LabelledExamples train, valid;
  int64_t classes = 0;
  // Which training labels are bad, where it is known (synthetic data): see label_noise.h. Undefined
  // otherwise.
  Tensor replaced, wrong;

  CleaningData to(const at::TensorOptions& options) const;
  // A column of ones after the features, whose weights are part of W and regularised like the rest.
  CleaningData with_bias() const;
};

struct SyntheticCleaningOptions {
  GaussianClassesOptions data{.classes = 5, .features = 10, .separation = 1, .unit_rows = true};
  int64_t samples = 60;
  int64_t valid_samples = 60;
  double label_noise =
      0.4;  // probability that a training label is replaced; stocBiO's repository has 0.1 and 0.4
};

CleaningData draw_cleaning_data(const SyntheticCleaningOptions& options, uint64_t seed);

struct CleaningFiles {
  std::string train_features, train_labels, valid_features, valid_labels;  // .npy
};

// Features are matrices of a floating type, one example a row; labels are vectors of integers 0 .. classes-1,
// every class with at least one training example. Throws std::runtime_error naming the file, what was
// expected, what was found and what to do. Features come back as stored, on the CPU.
CleaningData read_cleaning_files(const CleaningFiles& files);

}  // namespace bilevel
