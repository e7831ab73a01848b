#pragma once
// What the tests of the closed forms share: data with zeros in it, batches with repeated rows, thread counts.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>

#include "bilevel/core/batch.h"
#include "bilevel/core/random.h"
#include "bilevel/problems/cleaning_data.h"
#include "bilevel/problems/feature_matrix.h"
#include "bilevel/problems/labelled_rows.h"
#include "bilevel/problems/synthetic_classes.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {

using Storage = FeatureMatrix::Storage;

class Threads {  // for the time of a scope
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

// A fifth of the features are not zero, as in MNIST.
inline Tensor thinned(const Tensor& features, uint64_t seed) {
  return features * at::gt(Random(seed).normal(features.sizes(), features.options()), 0.84);
}

inline LabelledExamples thin_examples(int64_t count, int64_t features, int64_t classes, uint64_t seed) {
  const GaussianClassesOptions options{.classes = classes, .features = features};
  LabelledExamples examples = draw_gaussian_classes(options, count, seed, "train");
  examples.features = thinned(examples.features, seed + 100);
  examples.features[3].zero_();  // an example with nothing in it
  return examples;
}

inline LabelledRows rows_of(const LabelledExamples& examples, Storage storage, at::ScalarType dtype) {
  return {FeatureMatrix::from_dense(examples.features.to(dtype), storage), examples.labels};
}

inline Batch repeated_batch() {  // not in order, and some rows twice
  return {at::tensor({7, 3, 3, 41, 0, 12, 7, 59, 58, 30, 31, 33, 2, 7}, at::kLong), 0};
}
// Enough rows for several threads.
inline Batch long_batch(int64_t population, int64_t size) {
  return {Random(8).permutation(population).repeat({size / population + 1}).slice(0, 0, size).contiguous(),
          0};
}

}  // namespace bilevel::testing
