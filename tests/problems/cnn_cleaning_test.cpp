#include "bilevel/problems/cnn_cleaning.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bilevel/core/oracle.h"
#include "bilevel/problems/softmax_loss.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

CleaningData images(int64_t count, int64_t pixels, int64_t classes = 3) {
  Random random(3);
  CleaningData data;
  data.classes = classes;
  for (LabelledExamples* set : {&data.train, &data.valid}) {
    set->features = random.uniform({count, pixels}, doubles());
    set->labels = at::arange(count, at::kLong).remainder(classes);
  }
  return data;
}

CnnCleaning tiny(double regularization = 0) {
  return {images(6, 8 * 4),
          {8, 4},
          {.first_channels = 2, .second_channels = 3, .hidden = 4, .regularization = regularization},
          doubles()};
}

TEST(CnnCleaning, CountsItsWeights) {
  // 16 x 9 + 16, 32 x 16 x 9 + 32, 64 x 1568 + 64, 10 x 64 + 10
  const CnnCleaning problem(images(20, 784, 10), {28, 28}, {}, floats());
  EXPECT_EQ(problem.initial_inner(0).numel(), 160 + 4640 + 100416 + 650);
  EXPECT_EQ(problem.initial_outer(0).numel(), 20);
  EXPECT_EQ(problem.inner_layout()->entries().size(), 8U);
  EXPECT_FALSE(problem.initial_inner(0).equal(problem.initial_inner(1)));
  EXPECT_EQ(problem.initial_inner(0).scalar_type(), at::kFloat);
}

// One pixel's path through the network by hand: an image with one bright corner pixel and filters that pass
// it.
TEST(CnnCleaning, LogitsByHand) {
  CleaningData data = images(2, 16, 2);
  data.train.features = at::zeros({2, 16}, doubles());
  data.train.features[0][0] = 3;
  const CnnCleaning problem(data, {4, 4}, {.first_channels = 1, .second_channels = 1, .hidden = 1},
                            doubles());
  std::vector<Tensor> parts =
      problem.inner_layout()->split(at::zeros({9 + 1 + 9 + 1 + 1 + 1 + 2 + 2}, doubles()));
  for (Tensor& part : parts) part = part.clone();
  parts[0][0][0][1][1] = 2;  // relu(2 * 3 - 1) = 5
  parts[1][0] = -1;
  parts[2][0][0][1][1] = 0.5;  // relu(2.5 + 0.25) = 2.75, of the dark image 0.25
  parts[3][0] = 0.25;
  parts[4][0][0] = 4;
  parts[5][0] = -2;  // relu(11 - 2) = 9, of the dark image relu(1 - 2) = 0
  parts[6][0][0] = 1;
  parts[6][1][0] = -1;
  parts[7][1] = 0.5;
  const Tensor w = problem.inner_layout()->flatten(parts);
  const Tensor expected = vector({9, -8.5, 0, 0.5}).reshape({2, 2});
  EXPECT_LT(relative_error(problem.logits(data.train.features, w), expected), 1e-14);
  const Tensor x = vector({0.3, -1});
  const double first = std::log(1 + std::exp(-17.5)), second = std::log(std::exp(0.0) + std::exp(0.5)) - 0.5;
  const auto sigmoid = [](double t) { return 1 / (1 + std::exp(-t)); };
  EXPECT_NEAR(value(problem.inner_loss(w, x, {})), (sigmoid(0.3) * first + sigmoid(-1) * second) / 2, 1e-13);
}

TEST(CnnCleaning, DerivativesAgreeWithDifferences) {
  const CnnCleaning problem = tiny(0.01);
  const Point point = generic_point(problem);
  const Tensor v = random_like(point.w, 6), u = random_like(point.x, 7);
  Oracle oracle(problem);
  // The step is small because a ReLU or a pool may change sides within a larger one.
  const double step = 1e-6;
  const Tensor slope =
      difference([&](const Tensor& w) { return problem.inner_loss(w, point.x, {}); }, point.w, v, step);
  EXPECT_LT(relative_error(oracle.inner_gradient(point.w, point.x, {}).dot(v), slope), 1e-8);
  const Tensor outer =
      difference([&](const Tensor& w) { return problem.outer_loss(w, point.x, {}); }, point.w, v, step);
  EXPECT_LT(relative_error(oracle.outer_gradients(point.w, point.x, {}).w.dot(v), outer), 1e-8);
  const auto linear = oracle.linearize(point.w, point.x, {});
  const Tensor curved =
      difference([&](const Tensor& w) { return problem.inner_gradient(w, point.x, {}); }, point.w, v, step);
  EXPECT_LT(relative_error(linear->hessian(v), curved), 1e-7);
  const Tensor mixed =
      difference([&](const Tensor& x) { return problem.inner_gradient(point.w, x, {}); }, point.x, u, step);
  EXPECT_LT(relative_error(linear->cross_transposed(u), mixed), 1e-7);
  EXPECT_LT(relative_error(linear->cross(v).dot(u), mixed.dot(v)), 1e-7);
}

TEST(CnnCleaning, BatchesAverageToTheWhole) {
  const CnnCleaning problem = tiny();
  const Point point = generic_point(problem);
  Tensor inner = at::zeros({}, doubles()), outer = at::zeros({}, doubles());
  for (const Batch& batch : partition(6, 3)) {
    inner = inner + problem.inner_loss(point.w, point.x, batch) / 3;
    outer = outer + problem.outer_loss(point.w, point.x, batch) / 3;
  }
  EXPECT_LT(relative_error(inner, problem.inner_loss(point.w, point.x, {})), 1e-13);
  EXPECT_LT(relative_error(outer, problem.outer_loss(point.w, point.x, {})), 1e-13);
  const InnerParts parts = *problem.inner_parts(point.w, point.x, {});
  EXPECT_LT(relative_error(parts.loss(parts.outputs), problem.inner_loss(point.w, point.x, {})), 1e-13);
}

TEST(CnnCleaning, ScoresOfManyImagesArePutTogether) {
  const CnnCleaning problem = tiny();
  const Tensor many = Random(8).uniform({1203, 32}, doubles());
  const Tensor w = problem.initial_inner(2);
  EXPECT_LT(relative_error(problem.scores(many, w), problem.logits(many, w)), 1e-13);
  EXPECT_EQ(problem.metrics(w, problem.initial_outer(0)).count("f1_wrong"), 0U);
}

TEST(CnnCleaning, RefusesWhatIsNoImage) {
  EXPECT_THAT([] { CnnCleaning(images(4, 10), {}, {}, doubles()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("10 features")));
  EXPECT_THAT(
      [] {
        CnnCleaning(images(4, 32), {8, 5}, {}, doubles());
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("8 x 5")));
  EXPECT_THAT(
      [] {
        CnnCleaning(images(4, 32), {8, 4}, {.hidden = 0}, doubles());
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("hidden = 0")));
  EXPECT_THAT(
      [] {
        CnnCleaning(images(4, 32), {8, 4}, {.regularization = -1}, doubles());
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("regularization = -1")));
}

}  // namespace
}  // namespace bilevel::testing
