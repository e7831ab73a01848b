#pragma once
// What the tests of the closed forms share: data with zeros in it, batches with repeated rows, thread counts.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>

#include "bilevel/core/batch.h"
#include "bilevel/core/random.h"
#include "bilevel/problems/cleaning_data.h"
#include "bilevel/problems/feature_matrix.h"
#include "bilevel/problems/labelled_rows.h"
#include "bilevel/problems/synthetic_classes.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {

// Threads, storage, dtype and {examples, features, classes}.
using Sizes = std::tuple<int64_t, int64_t, int64_t>;
using SoftmaxCase = std::tuple<int, FeatureMatrix::Storage, at::ScalarType, Sizes>;

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

// Every derivative of a closed form against automatic differentiation of a problem that shares no code with
// it.
inline void expect_same_numbers(const Problem& problem, const Problem& reference, const Point& at,
                                const Tensor& v, const Tensor& u, const Batch& batch, double near) {
  const auto expected = reference.linearize(at.w, at.x, batch);
  const auto found = problem.linearize(at.w, at.x, batch);
  EXPECT_LT(relative_error(problem.inner_loss(at.w, at.x, batch), reference.inner_loss(at.w, at.x, batch)),
            near);
  EXPECT_LT(relative_error(problem.inner_gradient(at.w, at.x, batch), expected->gradient()), near);
  EXPECT_LT(relative_error(found->hessian(v), expected->hessian(v)), near);
  EXPECT_LT(relative_error(found->hessian(v), expected->hessian(v)), near);  // from the kept probabilities
  EXPECT_LT(relative_error(found->gauss_newton(v), expected->hessian(v)),
            near);  // linear in w: the same matrix
  EXPECT_LT(relative_error(found->gradient(), expected->gradient()), near);
  EXPECT_LT(relative_error(found->cross(v), expected->cross(v)), near);
  EXPECT_LT(relative_error(found->cross_transposed(u), expected->cross_transposed(u)), near);
  const auto both = problem.linearize(at.w, at.x, batch)->hessian_and_cross(v);
  EXPECT_LT(relative_error(both.first, expected->hessian(v)), near);
  EXPECT_LT(relative_error(both.second, expected->cross(v)), near);
  // Asked for first, before anything is kept.
  EXPECT_LT(relative_error(problem.linearize(at.w, at.x, batch)->cross_transposed(u),
                           expected->cross_transposed(u)),
            near);
  EXPECT_LT(relative_error(problem.inner_gradient_in_outer(at.w, at.x, batch),
                           reference.inner_gradient_in_outer(at.w, at.x, batch)),
            near);
  const OuterGradients outer = problem.outer_gradients(at.w, at.x, batch);
  const OuterGradients outer_expected = reference.outer_gradients(at.w, at.x, batch);
  EXPECT_LT(relative_error(outer.loss, outer_expected.loss), near);
  EXPECT_LT(relative_error(outer.w, outer_expected.w), near);
  EXPECT_EQ(outer.x.abs().sum().item<double>(), 0);  // f has no x of its own
}

}  // namespace bilevel::testing
