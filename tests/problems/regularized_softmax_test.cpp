#include "bilevel/problems/regularized_softmax.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <tuple>
#include <utility>

#include "bilevel/core/autograd.h"
#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/softmax_loss.h"
#include "bilevel/problems/softmax_regression.h"
#include "tests/problems/softmax_checks.h"

namespace bilevel::testing {
namespace {

// The same problem by plain dense operations and autograd, w being features x classes as in the closed form.
class Reference : public Problem {
 public:
  Reference(LabelledExamples train, LabelledExamples valid, int64_t classes)
      : train_(std::move(train)), valid_(std::move(valid)), classes_(classes) {}
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    const Tensor matrix = w.view({-1, classes_});
    return mean_cross_entropy(batch_rows(train_.features, batch).mm(matrix),
                              batch_rows(train_.labels, batch)) +
           (x.exp() * (matrix * matrix).sum(1)).sum() / w.numel();
  }
  Tensor outer_loss(const Tensor& w, const Tensor& /*x*/, const Batch& batch) const override {
    return mean_cross_entropy(batch_rows(valid_.features, batch).mm(w.view({-1, classes_})),
                              batch_rows(valid_.labels, batch));
  }
  Tensor initial_inner(uint64_t /*seed*/) const override {
    return at::zeros({classes_ * train_.features.size(1)}, train_.features.options());
  }
  Tensor initial_outer(uint64_t /*seed*/) const override {
    return at::zeros({train_.features.size(1)}, train_.features.options());
  }

 private:
  LabelledExamples train_, valid_;
  int64_t classes_;
};

class RegularizedSoftmaxCases : public ::testing::TestWithParam<SoftmaxCase> {};

TEST_P(RegularizedSoftmaxCases, SameNumbersAsAutograd) {
  const auto [threads, storage, dtype, sizes] = GetParam();
  const auto [count, features, classes] = sizes;
  const Threads scope(threads);
  const LabelledExamples train = thin_examples(count, features, classes, 1);
  const LabelledExamples valid = thin_examples(count + 5, features, classes, 2);
  const Reference reference(train.to(dtype), valid.to(dtype), classes);
  const RegularizedSoftmax problem(rows_of(train, storage, dtype), rows_of(valid, storage, dtype), classes);
  const double near = dtype == at::kDouble ? 1e-12 : 1e-5;
  const Point point = generic_point(reference);
  const Tensor v = random_like(point.w, 5), u = random_like(point.x, 6);
  for (const Batch& batch : {Batch{}, repeated_batch(), long_batch(60, 150)}) {
    const auto expected = reference.linearize(point.w, point.x, batch);
    expect_same_numbers(problem, reference, point, v, u, batch, near);

    const Tensor product = problem.linearize(point.w, point.x, batch)->hessian(v);
    EXPECT_TRUE(problem.linearize(point.w, point.x, batch)->hessian(v).equal(product));  // the same bits
    const auto by_autograd = autograd::linearize(problem, point.w, point.x, batch);  // of the loss it offers
    EXPECT_LT(relative_error(by_autograd->gradient(), expected->gradient()), near);
    EXPECT_LT(relative_error(by_autograd->hessian(v), expected->hessian(v)), near);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RegularizedSoftmaxCases,
                         ::testing::Combine(::testing::Values(1, 2),
                                            ::testing::Values(Storage::dense, Storage::sparse),
                                            ::testing::Values(at::kDouble, at::kFloat),
                                            ::testing::Values(Sizes{71, 16, 4}, Sizes{71, 16, 20},
                                                              Sizes{71, 700, 20}, Sizes{71, 300, 5},
                                                              Sizes{71, 300, 40}, Sizes{71, 300, 32})));

TEST(RegularizedSoftmax, TheExistingProblemTransposed) {
  const SoftmaxRegression existing;
  const auto rows = [](const LabelledExamples& examples) {
    return rows_of(examples, Storage::dense, at::kDouble);
  };
  const RegularizedSoftmax problem(rows(existing.train()), rows(existing.valid()), 5);
  const Point point = generic_point(existing);
  const auto turned = [](const Tensor& w) { return w.view({5, 20}).t().reshape({-1}); };
  const Tensor v = random_like(point.w, 5);
  EXPECT_LT(relative_error(problem.inner_loss(turned(point.w), point.x, {}),
                           existing.inner_loss(point.w, point.x, {})),
            1e-13);
  EXPECT_LT(relative_error(problem.linearize(turned(point.w), point.x, {})->hessian(turned(v)),
                           turned(existing.linearize(point.w, point.x, {})->hessian(v))),
            1e-12);
  EXPECT_LT(relative_error(problem.linearize(turned(point.w), point.x, {})->cross(turned(v)),
                           existing.linearize(point.w, point.x, {})->cross(v)),
            1e-12);
  EXPECT_EQ(problem.metrics(turned(point.w), point.x), existing.metrics(point.w, point.x));
}

TEST(RegularizedSoftmax, FiniteDifferences) {
  const RegularizedSoftmax problem(rows_of(thin_examples(71, 100, 5, 1), Storage::sparse, at::kDouble),
                                   rows_of(thin_examples(71, 100, 5, 2), Storage::sparse, at::kDouble), 5);
  const Point point = generic_point(problem);
  const Tensor v = random_like(point.w, 5), u = random_like(point.x, 6);
  for (const Batch& batch : {Batch{}, repeated_batch()}) {
    const auto linear = problem.linearize(point.w, point.x, batch);
    const auto gradient_at_w = [&](const Tensor& w) { return problem.inner_gradient(w, point.x, batch); };
    const auto gradient_at_x = [&](const Tensor& x) { return problem.inner_gradient(point.w, x, batch); };
    EXPECT_LT(relative_error(linear->hessian(v), difference(gradient_at_w, point.w, v)), 1e-8);
    EXPECT_LT(relative_error(linear->cross_transposed(u), difference(gradient_at_x, point.x, u)), 1e-8);
    const auto loss = [&](const Tensor& w) { return problem.inner_loss(w, point.x, batch); };
    EXPECT_LT(relative_error(linear->gradient().dot(v), difference(loss, point.w, v)), 1e-8);
    EXPECT_NEAR(value(linear->cross(v).dot(u)), value(linear->cross_transposed(u).dot(v)), 1e-12);
  }
}

TEST(RegularizedSoftmax, TheBoundIsAbovePointwiseCurvature) {
  const RegularizedSoftmax problem(rows_of(thin_examples(71, 10, 3, 1), Storage::sparse, at::kDouble),
                                   rows_of(thin_examples(71, 10, 3, 2), Storage::sparse, at::kDouble), 3);
  const Point point = generic_point(problem);
  const Tensor largest = eigenvalues(dense_hessian(problem, point.w, point.x)).max();
  EXPECT_LT(value(largest), problem.smoothness_bound(point.x));
  EXPECT_GT(value(largest), 0.1 * problem.smoothness_bound(point.x));
}

TEST(RegularizedSoftmax, BadInput) {
  const RegularizedSoftmax problem(rows_of(thin_examples(71, 10, 3, 1), Storage::sparse, at::kDouble),
                                   rows_of(thin_examples(71, 10, 3, 2), Storage::sparse, at::kDouble), 3);
  const Tensor w = problem.initial_inner(0), x = problem.initial_outer(0);
  const Batch outside{at::tensor({71}, at::kLong), 0};
  EXPECT_THROW(problem.inner_gradient(w, x, outside), std::invalid_argument);
  EXPECT_THROW(problem.inner_gradient_in_outer(w, x, outside), std::invalid_argument);
  EXPECT_THROW(problem.linearize(w, x, outside), std::invalid_argument);
  EXPECT_THROW(problem.inner_loss(w, x, outside), std::invalid_argument);
  EXPECT_THROW(problem.inner_gradient(w, w, {}), std::invalid_argument);
  EXPECT_THROW(problem.inner_gradient(x, x, {}), std::invalid_argument);
  EXPECT_THROW(problem.linearize(w, x, {})->cross(x), std::invalid_argument);
  EXPECT_THROW(problem.linearize(w, x, {})->cross_transposed(w), std::invalid_argument);
  EXPECT_THROW(RegularizedSoftmax(problem.train(), problem.valid(), 2), std::invalid_argument);  // label 2
  EXPECT_THROW(RegularizedSoftmax(problem.train(), {}, 3), std::invalid_argument);
}

}  // namespace
}  // namespace bilevel::testing
