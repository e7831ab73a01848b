#include "bilevel/problems/weighted_softmax.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bilevel/core/autograd.h"
#include "bilevel/problems/hyper_cleaning.h"
#include "tests/problems/softmax_checks.h"

namespace bilevel::testing {
namespace {

CleaningData cleaning_data(int64_t count, int64_t features, int64_t classes) {
  CleaningData data;
  data.classes = classes;
  data.train = thin_examples(count, features, classes, 1);
  data.valid = thin_examples(count + 5, features, classes, 2);
  return data;
}

// threads, storage, dtype, {examples, features, classes}
class WeightedSoftmaxCases : public ::testing::TestWithParam<SoftmaxCase> {
 protected:
  int threads() const { return std::get<0>(GetParam()); }
  Storage storage() const { return std::get<1>(GetParam()); }
  at::ScalarType dtype() const { return std::get<2>(GetParam()); }
  CleaningData data() const {
    const auto [count, features, classes] = std::get<3>(GetParam());
    return cleaning_data(count, features, classes);
  }
  double tolerance() const { return dtype() == at::kDouble ? 1e-12 : 1e-5; }
};

// Every derivative against automatic differentiation of the existing problem, which shares no code with it.
TEST_P(WeightedSoftmaxCases, SameNumbersAsAutograd) {
  const Threads scope(threads());
  const HyperCleaning reference(data(), 0.01, dtype());
  const WeightedSoftmax problem(data(), 0.01, dtype(), storage());
  const Point point = generic_point(reference);
  const Tensor v = random_like(point.w, 5), u = random_like(point.x, 6);
  const double near = tolerance();
  for (const Batch& batch : {Batch{}, repeated_batch(), long_batch(60, 150)}) {
    expect_same_numbers(problem, reference, point, v, u, batch, near);
  }
}

TEST_P(WeightedSoftmaxCases, TheSameBitsEveryTime) {
  const Threads scope(threads());
  const WeightedSoftmax problem(data(), 0.01, dtype(), storage());
  const Point point = generic_point(problem);
  const Tensor v = random_like(point.w, 5);
  for (const Batch& batch : {Batch{}, long_batch(60, 150)}) {
    const Tensor gradient = problem.inner_gradient(point.w, point.x, batch);
    const Tensor product = problem.linearize(point.w, point.x, batch)->hessian(v);
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(problem.inner_gradient(point.w, point.x, batch).equal(gradient));
      EXPECT_TRUE(problem.linearize(point.w, point.x, batch)->hessian(v).equal(product));
    }
  }
}

// 16 and 100 features: more and fewer examples than features. The classes meet every stride of the kernels.
INSTANTIATE_TEST_SUITE_P(All, WeightedSoftmaxCases,
                         ::testing::Combine(::testing::Values(1, 2),
                                            ::testing::Values(Storage::dense, Storage::sparse),
                                            ::testing::Values(at::kDouble, at::kFloat),
                                            ::testing::Values(Sizes{71, 16, 3}, Sizes{71, 16, 10},
                                                              Sizes{71, 100, 10}, Sizes{71, 100, 20},
                                                              Sizes{71, 16, 7}, Sizes{71, 16, 25},
                                                              Sizes{71, 16, 40}, Sizes{171, 100, 40},
                                                              Sizes{200, 16, 10}, Sizes{1300, 7, 9})));

// One thread goes block of rows by block, several take the rows and then the columns (softmax_sweep.cpp).
TEST(WeightedSoftmax, SparseDataGivesTheSameBitsOnOneThreadAndTwo) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const WeightedSoftmax problem(cleaning_data(1300, 7, 10), 0.01, dtype, Storage::sparse);
    ASSERT_GT(problem.train().features.by_columns().offsets.numel(), 2 * 7 + 1);  // three blocks
    const Point point = generic_point(problem);
    const Tensor v = random_like(point.w, 5);
    std::vector<Tensor> gradients, products;
    for (const int threads : {1, 2}) {
      const Threads scope(threads);
      gradients.push_back(problem.inner_gradient(point.w, point.x, {}));
      products.push_back(problem.linearize(point.w, point.x, {})->hessian(v));
    }
    EXPECT_TRUE(gradients[0].equal(gradients[1]));
    EXPECT_TRUE(products[0].equal(products[1]));
  }
}

TEST(WeightedSoftmax, TheLossCanBeDifferentiatedTwice) {  // what `bilevel check` does, on sparse data too
  for (const int64_t features : {16, 100}) {
    const WeightedSoftmax problem(cleaning_data(71, features, 5), 0.01, doubles(), Storage::sparse);
    const Point point = generic_point(problem);
    const Tensor v = random_like(point.w, 5), u = random_like(point.x, 6);
    for (const Batch& batch : {Batch{}, repeated_batch()}) {
      const auto expected = autograd::linearize(problem, point.w, point.x, batch);
      const auto found = problem.linearize(point.w, point.x, batch);
      EXPECT_LT(relative_error(found->gradient(), expected->gradient()), 1e-12);
      EXPECT_LT(relative_error(found->hessian(v), expected->hessian(v)), 1e-12);
      EXPECT_LT(relative_error(found->cross(v), expected->cross(v)), 1e-12);
      EXPECT_LT(relative_error(found->cross_transposed(u), expected->cross_transposed(u)), 1e-12);
      EXPECT_LT(relative_error(problem.outer_gradients(point.w, point.x, batch).w,
                               autograd::outer_gradients(problem, point.w, point.x, batch).w),
                1e-12);
    }
  }
}

TEST(WeightedSoftmax, FiniteDifferences) {
  const WeightedSoftmax problem(cleaning_data(71, 16, 5), 0.01, doubles());
  const Point point = generic_point(problem);
  const Tensor v = random_like(point.w, 5), u = random_like(point.x, 6);
  const Batch batch = repeated_batch();
  const auto linear = problem.linearize(point.w, point.x, batch);
  const auto gradient_at_w = [&](const Tensor& w) { return problem.inner_gradient(w, point.x, batch); };
  const auto gradient_at_x = [&](const Tensor& x) { return problem.inner_gradient(point.w, x, batch); };
  const auto outer_at_w = [&](const Tensor& w) { return problem.inner_gradient_in_outer(w, point.x, batch); };
  EXPECT_LT(relative_error(linear->hessian(v), difference(gradient_at_w, point.w, v)), 1e-8);
  EXPECT_LT(relative_error(linear->cross_transposed(u), difference(gradient_at_x, point.x, u)), 1e-8);
  EXPECT_LT(relative_error(linear->cross(v), difference(outer_at_w, point.w, v)), 1e-8);
  const auto loss = [&](const Tensor& w) { return problem.inner_loss(w, point.x, batch); };
  EXPECT_LT(relative_error(linear->gradient().dot(v), difference(loss, point.w, v)), 1e-8);
}

TEST(WeightedSoftmax, StoresManyZerosSparselyByItself) {
  CleaningData data = cleaning_data(71, 16, 5);
  EXPECT_TRUE(WeightedSoftmax(data, 0.01, doubles()).train().features.is_sparse());
  data.train.features += 1;
  EXPECT_FALSE(WeightedSoftmax(data, 0.01, doubles()).train().features.is_sparse());
}

TEST(WeightedSoftmax, LargeLogitsStayFinite) {
  const CleaningData data = cleaning_data(71, 16, 5);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const HyperCleaning reference(data, 0.01, dtype);
    const WeightedSoftmax problem(data, 0.01, dtype);
    const Tensor w = 1000 * random_like(problem.initial_inner(0), 3), x = problem.initial_outer(0);
    EXPECT_LT(relative_error(problem.inner_gradient(w, x, {}), reference.inner_gradient(w, x, {})), 1e-5);
    EXPECT_LT(relative_error(problem.outer_gradients(w, x, {}).loss, reference.outer_loss(w, x, {})), 1e-5);
  }
}

TEST(WeightedSoftmax, NotANumberComesThrough) {
  const WeightedSoftmax problem(cleaning_data(71, 16, 5), 0.01, doubles());
  Tensor w = problem.initial_inner(0);
  w[7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(problem.inner_gradient(w, problem.initial_outer(0), {}).isnan().any().item<bool>());
}

TEST(WeightedSoftmax, MetricsAndBoundOfTheAutogradProblem) {
  CleaningData data = draw_cleaning_data({}, 4);
  const HyperCleaning reference(data, 0.01, doubles());
  const WeightedSoftmax problem(data, 0.01, doubles());
  const Tensor w = random_like(problem.initial_inner(0), 3), x = 4 * random_like(problem.initial_outer(0), 4);
  EXPECT_EQ(problem.metrics(w, x), reference.metrics(w, x));
  EXPECT_NEAR(problem.smoothness_bound(), reference.smoothness_bound(), 1e-12);
  EXPECT_EQ(problem.inner_samples(), reference.inner_samples());
  EXPECT_EQ(problem.outer_samples(), reference.outer_samples());
}

template <class Function>
void expect_invalid(const Function& function, const std::string& message) {
  try {
    function();
    FAIL() << "nothing was thrown; expected: " << message;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
  }
}

TEST(WeightedSoftmax, BadInput) {
  const CleaningData data = cleaning_data(71, 16, 5);
  expect_invalid([&] { WeightedSoftmax(data, -1, doubles()); }, "regularization = -1");
  CleaningData bad = data;
  bad.train.labels = data.train.labels + 1;
  expect_invalid([&] { WeightedSoftmax(bad, 0, doubles()); }, "training labels run from 1 to 5");
  bad = data;
  bad.valid.labels = data.valid.labels.slice(0, 1);
  expect_invalid([&] { WeightedSoftmax(bad, 0, doubles()); },
                 "validation labels must be a vector of 76 int64");
  bad = data;
  bad.valid.features = data.valid.features.slice(1, 1);
  expect_invalid([&] { WeightedSoftmax(bad, 0, doubles()); }, "training set has 16 features");
  bad = data;
  bad.train.features = data.train.features / 0;
  expect_invalid([&] { WeightedSoftmax(bad, 0, doubles()); }, "training features are not finite");

  const WeightedSoftmax problem(data, 0.01, doubles());
  const Tensor w = problem.initial_inner(0), x = problem.initial_outer(0);
  const auto gradient = [&](const Batch& batch) {
    return [&, batch] { problem.inner_gradient(w, x, batch); };
  };
  expect_invalid(gradient({at::empty({0}, at::kLong), 0}), "batch.index is empty");
  expect_invalid(gradient({at::tensor({0, 71}, at::kLong), 0}), "batch.index[1] = 71 is out of range");
  expect_invalid(gradient({at::tensor({-1}, at::kLong), 0}), "batch.index[0] = -1 is out of range");
  expect_invalid([&] { problem.outer_gradients(w, x, {at::tensor({76}, at::kLong), 0}); }, "out of range");
  expect_invalid([&] { problem.inner_gradient(w.slice(0, 1), x, {}); }, "w must be a vector of 5 x 16 = 80");
  expect_invalid([&] { problem.inner_gradient(w.to(at::kFloat), x, {}); }, "numbers of Double");
  expect_invalid([&] { problem.inner_gradient(w, x.slice(0, 1), {}); }, "x must have 71 numbers");
  expect_invalid([&] { problem.linearize(w, x, {})->hessian(x); }, "the vector of a product");
  expect_invalid([&] { problem.linearize(w, x, {})->cross_transposed(w); }, "transposed cross product");
}

}  // namespace
}  // namespace bilevel::testing
