#include "bilevel/problems/hyper_cleaning.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/label_noise.h"
#include "bilevel/problems/softmax_loss.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

CleaningData tiny_data() {
  CleaningData data;
  data.classes = 2;
  data.train = {vector({1, 2, -1, 0.5, 0, 3}).view({3, 2}), at::tensor({0L, 1L, 1L})};
  data.valid = {vector({2, 1, -1, -1}).view({2, 2}), at::tensor({1L, 0L})};
  return data;
}

double tiny_entropy(const std::vector<double>& w, double a, double b, int label) {
  const double score[2] = {w[0] * a + w[1] * b, w[2] * a + w[3] * b};
  return std::log(std::exp(score[0]) + std::exp(score[1])) - score[label];
}

TEST(HyperCleaning, LossesByHand) {
  const HyperCleaning problem(tiny_data(), 0.1, doubles());
  const std::vector<double> w{0.3, -0.2, 0.5, 0.7};  // classes x features, row by row
  const std::vector<double> x{0.4, -1, 2};
  auto sigmoid = [](double logit) { return 1 / (1 + std::exp(-logit)); };
  const double penalty = 0.1 * (0.09 + 0.04 + 0.25 + 0.49);
  const double losses[3] = {sigmoid(0.4) * tiny_entropy(w, 1, 2, 0),
                            sigmoid(-1) * tiny_entropy(w, -1, 0.5, 1), sigmoid(2) * tiny_entropy(w, 0, 3, 1)};
  EXPECT_NEAR(value(problem.inner_loss(vector(w), vector(x), {})),
              (losses[0] + losses[1] + losses[2]) / 3 + penalty, 1e-14);
  EXPECT_NEAR(value(problem.inner_loss(vector(w), vector(x), {at::tensor({2L, 0L}), 0})),
              (losses[0] + losses[2]) / 2 + penalty, 1e-14);
  EXPECT_NEAR(value(problem.outer_loss(vector(w), vector(x), {})),
              (tiny_entropy(w, 2, 1, 1) + tiny_entropy(w, -1, -1, 0)) / 2, 1e-14);
}

TEST(HyperCleaning, StartsAtZero) {
  const HyperCleaning problem(draw_cleaning_data({}, 0), 0.01, doubles());
  EXPECT_TRUE(at::equal(problem.initial_inner(5), at::zeros({50}, doubles())));
  EXPECT_TRUE(at::equal(problem.initial_outer(5), at::zeros({60}, doubles())));
  EXPECT_NEAR(value(problem.inner_loss(problem.initial_inner(0), problem.initial_outer(0), {})),
              0.5 * std::log(5.0), 1e-14);
}

TEST(HyperCleaning, BiasIsAColumnOfOnesThatIsRegularised) {
  const HyperCleaning plain(tiny_data(), 0.1, doubles());
  const HyperCleaning biased(tiny_data().with_bias(), 0.1, doubles());
  const Tensor x = vector({0.4, -1, 2});
  ASSERT_EQ(biased.initial_inner(0).numel(), 6);
  const Tensor without = vector({0.3, -0.2, 0, 0.5, 0.7, 0});
  EXPECT_NEAR(value(biased.inner_loss(without, x, {})),
              value(plain.inner_loss(vector({0.3, -0.2, 0.5, 0.7}), x, {})), 1e-14);
  // The same bias for both classes moves no probability: only the regulariser changes.
  const Tensor shifted = vector({0.3, -0.2, 2, 0.5, 0.7, 2});
  EXPECT_NEAR(value(biased.inner_loss(shifted, x, {}) - biased.inner_loss(without, x, {})), 0.1 * 8, 1e-14);
  EXPECT_NEAR(value(biased.outer_loss(shifted, x, {})), value(biased.outer_loss(without, x, {})), 1e-14);
}

TEST(HyperCleaning, GaussNewtonIsTheHessian) {
  const HyperCleaning problem(draw_cleaning_data({}, 0), 0.01, doubles());
  const Point point = generic_point(problem);
  const Tensor v = random_like(point.w, 5);
  for (const Batch& batch : {Batch{}, partition(60, 5)[2]}) {
    const auto linear = problem.linearize(point.w, point.x, batch);
    EXPECT_LT(relative_error(linear->gauss_newton(v), linear->hessian(v)), 1e-12);
  }
}

TEST(HyperCleaning, SmoothnessBoundHoldsAtEveryPoint) {
  const HyperCleaning problem(draw_cleaning_data({}, 0), 0.01, doubles());
  const double bound = problem.smoothness_bound();
  const Tensor features = problem.data().train.features;
  EXPECT_NEAR(bound, 0.5 * value(eigenvalues(features.t().mm(features) / 60)[-1]) + 0.02, 0.02 * bound);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Tensor w = 3 * random_like(problem.initial_inner(0), seed);
    const Tensor x = 10 * random_like(problem.initial_outer(0), seed + 100);
    EXPECT_LT(value(eigenvalues(dense_hessian(problem, w, x))[-1]), bound);
    EXPECT_GT(value(eigenvalues(dense_hessian(problem, w, x))[0]), 0.02 * (1 - 1e-10));
  }
}

TEST(HyperCleaning, MetricsScoreTheFlaggedExamplesAgainstBothTruths) {
  const CleaningData data = draw_cleaning_data({}, 0);
  const HyperCleaning problem(data, 0.01, doubles());
  const Tensor w = problem.initial_inner(0);
  const Tensor perfect = at::where(data.wrong, at::full({}, -3.5, doubles()), at::full({}, 1.0, doubles()));
  auto metrics = problem.metrics(w, perfect);
  EXPECT_EQ(metrics.at("f1_wrong"), 1);
  EXPECT_LT(metrics.at("f1_replaced"), 1);
  EXPECT_GT(metrics.at("f1_replaced"), 0.7);
  metrics = problem.metrics(w, problem.initial_outer(0));
  EXPECT_EQ(metrics.at("f1_wrong"), 0);
  EXPECT_EQ(
      HyperCleaning(tiny_data(), 0.1, doubles()).metrics(vector({0, 0, 0, 0}), vector({0, 0, 0})).size(), 2U)
      << "with a user's data the truth is unknown";
}

TEST(HyperCleaning, ValidationLabelsAreCleanAndTrainingLabelsNoisy) {
  const CleaningData data = draw_cleaning_data({.samples = 1000, .label_noise = 0.4}, 0);
  EXPECT_TRUE(at::equal(data.valid.labels, at::arange(60).remainder(5)));
  EXPECT_TRUE(at::equal(data.wrong, data.train.labels.ne(at::arange(1000).remainder(5))));
  EXPECT_NEAR(value(data.replaced.to(at::kDouble).mean()), 0.4, 0.05);
}

TEST(HyperCleaning, RefusesBadRegularizationAndFeaturesThatOverflow) {
  EXPECT_THAT([] { HyperCleaning(tiny_data(), -1, doubles()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("regularization = -1")));
  EXPECT_THAT([] { HyperCleaning(tiny_data(), INFINITY, doubles()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("regularization = inf")));
  CleaningData large = tiny_data();
  large.valid.features[0][0] = 1e300;  // finite in double, infinite in float
  EXPECT_NO_THROW(HyperCleaning(large, 0.1, doubles()));
  EXPECT_THAT([&] { HyperCleaning(large, 0.1, floats()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("validation features")));
}

// Mistake 4 of docs/mathematics.md: labels corrupted in place at every visit of a batch. What a visit sees
// must not depend on the visits before it.
class CorruptsAtEveryVisit : public HyperCleaning {
 public:
  CorruptsAtEveryVisit(const CleaningData& data, double noise)
      : HyperCleaning(data, 0.01, doubles()), noise_(noise) {}
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    const Tensor labels = batch_rows(labels_, batch);
    const Tensor noisy = replace_labels(labels, data().classes, noise_, random_).labels;
    if (batch.is_full()) {
      labels_.copy_(noisy);
    } else {
      labels_.index_copy_(0, batch.index, noisy);
    }
    const Tensor scores = batch_rows(data().train.features, batch).mm(w.view({data().classes, -1}).t());
    return weighted_cross_entropy(scores, noisy, batch_rows(x, batch).sigmoid()) + 0.01 * w.dot(w);
  }

 private:
  double noise_;
  mutable Random random_{1};
  mutable Tensor labels_ = data().train.labels.clone();
};

bool visits_see_the_same_labels(const HyperCleaning& problem) {
  const Point point = generic_point(problem);
  const std::vector<Batch> batches = partition(problem.inner_samples(), 5);
  std::vector<double> first;
  for (const Batch& batch : batches) first.push_back(value(problem.inner_loss(point.w, point.x, batch)));
  for (int epoch = 0; epoch < 3; ++epoch) {
    double mean = 0;
    for (size_t i = 0; i < batches.size(); ++i) {
      const double again = value(problem.inner_loss(point.w, point.x, batches[i]));
      if (again != first[i]) return false;
      mean += again / static_cast<double>(batches.size());
    }
    if (relative_error(mean, value(problem.inner_loss(point.w, point.x, {}))) > 1e-12) return false;
  }
  return true;
}

TEST(FieldNotes, Bug4LabelsAreCorruptedOnceAndNotAtEveryVisit) {
  const CleaningData noisy = draw_cleaning_data({}, 0);
  ASSERT_TRUE(noisy.wrong.any().item<bool>()) << "there must be noise for the test to mean anything";
  const Tensor labels = noisy.train.labels.clone();
  const HyperCleaning problem(noisy, 0.01, doubles());
  EXPECT_TRUE(visits_see_the_same_labels(problem));
  EXPECT_TRUE(at::equal(problem.data().train.labels, labels));

  const CleaningData clean = draw_cleaning_data({.label_noise = 0}, 0);
  EXPECT_FALSE(visits_see_the_same_labels(CorruptsAtEveryVisit(clean, 0.4)));
}

}  // namespace
}  // namespace bilevel::testing
