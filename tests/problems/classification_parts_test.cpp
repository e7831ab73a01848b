// The pieces that the classification problems share: the loss, the batches, the synthetic clouds and the
// label noise.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bilevel/problems/batch_rows.h"
#include "bilevel/problems/label_noise.h"
#include "bilevel/problems/softmax_loss.h"
#include "bilevel/problems/synthetic_classes.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(SoftmaxLoss, CrossEntropiesByHand) {
  const Tensor logits = vector({1, 2, 4, 0, 0, 0}).view({2, 3});
  const Tensor labels = at::tensor({1L, 2L});
  const double first = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(4.0)) - 2;
  const double second = std::log(3.0);
  EXPECT_LT(relative_error(cross_entropies(logits, labels), vector({first, second})), 1e-15);
  EXPECT_NEAR(value(mean_cross_entropy(logits, labels)), (first + second) / 2, 1e-15);
  // Divided by the number of examples, not by the sum of the weights.
  EXPECT_NEAR(value(weighted_cross_entropy(logits, labels, vector({0.25, 0.5}))),
              (0.25 * first + 0.5 * second) / 2, 1e-15);
}

TEST(SoftmaxLoss, LargeLogitsStayFinite) {
  const Tensor logits = vector({1e4, 0, -1e4, 1e4}).view({2, 2});
  EXPECT_TRUE(at::equal(cross_entropies(logits, at::tensor({1L, 1L})), vector({1e4, 0})));
}

TEST(SoftmaxLoss, AccuracyIsPercent) {
  const Tensor logits = vector({1, 2, 3, 0, 0, 1, 5, 4}).view({4, 2});
  EXPECT_DOUBLE_EQ(accuracy_percent(logits, at::tensor({1L, 0L, 0L, 0L})), 75);
}

TEST(BatchRows, GathersInOrderAndSaysWhatIsWrong) {
  const Tensor data = vector({10, 11, 12, 13});
  EXPECT_TRUE(batch_rows(data, {}).is_same(data));
  EXPECT_TRUE(at::equal(batch_rows(data, {at::tensor({3L, 0L, 3L}), 0}), vector({13, 10, 13})));
  const Tensor strided = at::tensor({0L, 9L, 2L, 9L}).slice(0, 0, 4, 2);
  EXPECT_TRUE(at::equal(batch_rows(data, {strided, 0}), vector({10, 12})));
  EXPECT_THAT(
      [&] {
        batch_rows(data, {at::tensor({0L, 4L}), 0});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("batch.index[1] = 4")));
  EXPECT_THAT(
      [&] {
        batch_rows(data, {at::empty({0}, at::kLong), 0});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("empty")));
  EXPECT_THAT(
      [&] {
        batch_rows(data, {at::zeros({2}, at::kInt), 0});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("Int")));
}

TEST(SyntheticClasses, BalancedCloudsSharedByTwoDraws) {
  const GaussianClassesOptions options{.classes = 3, .features = 4, .separation = 2};
  const LabelledExamples train = draw_gaussian_classes(options, 3000, 8, "train");
  const LabelledExamples valid = draw_gaussian_classes(options, 3000, 8, "valid");
  EXPECT_FALSE(at::equal(train.features, valid.features));
  const LabelledExamples other = draw_gaussian_classes(options, 3000, 9, "train");
  EXPECT_GT(value((other.features.mean(0) - train.features.mean(0)).abs().max()), 0.2)
      << "other seed, other clouds";
  for (int64_t c = 0; c < 3; ++c) {
    const Tensor mine = train.features.index_select(0, train.labels.eq(c).nonzero().squeeze(1));
    const Tensor theirs = valid.features.index_select(0, valid.labels.eq(c).nonzero().squeeze(1));
    EXPECT_EQ(mine.size(0), 1000);
    EXPECT_LT(value((mine.mean(0) - theirs.mean(0)).abs().max()), 0.2);  // 4.5 standard deviations
    EXPECT_NEAR(value((mine - mine.mean(0)).square().mean()), 1, 0.1);
  }
}

TEST(SyntheticClasses, UnitRowsHaveLengthOne) {
  const LabelledExamples examples = draw_gaussian_classes({.unit_rows = true}, 50, 1, "train");
  EXPECT_LT(value((examples.features.norm(2, {1}) - 1).abs().max()), 1e-15);
}

TEST(SyntheticClasses, RefusesBadOptions) {
  EXPECT_THAT([] { draw_gaussian_classes({.classes = 1}, 10, 0, "train"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("classes = 1")));
  EXPECT_THAT([] { draw_gaussian_classes({.features = 0}, 10, 0, "train"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("features = 0")));
  EXPECT_THAT([] { draw_gaussian_classes({.separation = NAN}, 10, 0, "train"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("separation = nan")));
  EXPECT_THAT([] { draw_gaussian_classes({.classes = 5}, 4, 0, "train"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("4 examples")));
}

TEST(LabelNoise, ReplacesTheShareThatIsAskedForAndKnowsWhich) {  // docs/mathematics.md
  const int64_t count = 20'000;
  const Tensor clean = at::arange(count).remainder(10);
  const Tensor before = clean.clone();
  Random random(3);
  const NoisyLabels noisy = replace_labels(clean, 10, 0.5, random);
  EXPECT_TRUE(at::equal(clean, before));
  EXPECT_TRUE(at::equal(noisy.wrong, noisy.labels.ne(clean)));
  EXPECT_FALSE(noisy.wrong.logical_and(noisy.replaced.logical_not()).any().item<bool>());
  EXPECT_NEAR(value(noisy.replaced.to(at::kDouble).mean()), 0.5, 0.015);
  EXPECT_NEAR(value(noisy.wrong.to(at::kDouble).mean()), 0.45, 0.015);
  // The replacements are uniform over all classes.
  const Tensor drawn =
      at::bincount(noisy.labels.masked_select(noisy.replaced), {}, 10).to(at::kDouble) / (0.5 * count);
  EXPECT_LT(value((drawn - 0.1).abs().max()), 0.015);
}

TEST(LabelNoise, NoneAndAll) {
  const Tensor clean = at::arange(100).remainder(4);
  Random random(1);
  EXPECT_TRUE(at::equal(replace_labels(clean, 4, 0, random).labels, clean));
  EXPECT_TRUE(replace_labels(clean, 4, 1, random).replaced.all().item<bool>());
  EXPECT_THAT([&] { replace_labels(clean, 4, 1.5, random); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("label noise = 1.5")));
}

TEST(LabelNoise, F1ByHand) {
  const auto booleans = [](const std::vector<double>& bits) { return vector(bits).to(at::kBool); };
  // 2 hits, 1 false alarm, 1 miss: precision and recall are 2/3.
  EXPECT_NEAR(f1_score(booleans({1, 1, 1, 0, 0}), booleans({1, 1, 0, 1, 0})), 2.0 / 3, 1e-15);
  EXPECT_EQ(f1_score(booleans({0, 0}), booleans({0, 0})), 0);
  EXPECT_EQ(f1_score(booleans({0, 0}), booleans({0, 1})), 0);
  EXPECT_EQ(f1_score(booleans({0, 1}), booleans({0, 1})), 1);
}

}  // namespace
}  // namespace bilevel::testing
