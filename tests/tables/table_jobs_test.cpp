// clean_table and tune_table as jobs: what they find where the truth is known, that scales do not matter, and
// that they return their baselines where they find nothing.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/problems/label_noise.h"
#include "bilevel/problems/synthetic_classes.h"
#include "bilevel/tables/clean_table.h"
#include "bilevel/tables/table_scores.h"
#include "bilevel/tables/tune_table.h"
#include "tests/support.h"
#include "tests/tables/features.h"

namespace bilevel::test {
namespace {

LabelledExamples clouds(int64_t count, const char* stream) {
  return draw_gaussian_classes({.classes = 3, .features = 5, .separation = 2}, count, 1, stream);
}

struct Spoiled {
  CleanTableData data;
  Tensor wrong;
};

// A share of the labels becomes the next class.
Spoiled spoiled(double share, const Tensor& scales) {
  const LabelledExamples train = clouds(150, "train"), trusted = clouds(30, "valid");
  Spoiled s;
  Random random(8);
  s.wrong = random.uniform({150}, doubles()).lt(share);
  s.data = {.train = {train.features.to(at::kDouble) * scales,
                      at::where(s.wrong, (train.labels + 1).remainder(3), train.labels)},
            .trusted = {trusted.features.to(at::kDouble) * scales, trusted.labels},
            .classes = 3};
  return s;
}

Tensor flags(const CleanTableResult& r, int64_t rows) {
  Tensor flagged = at::zeros({rows}, at::kBool);
  for (const int64_t i : r.suspects) flagged[i] = true;
  return flagged;
}

TEST(CleanTable, FindsLabelsThatWentToTheNextClass) {
  const Spoiled s = spoiled(0.4, at::ones({5}, doubles()));
  const CleanTableResult r = clean_table(s.data, {});
  EXPECT_FALSE(r.kept_baseline);
  EXPECT_LT(r.loss, r.baseline_loss);
  EXPECT_GT(f1_score(flags(r, 150), s.wrong), 0.9);
  // Calibrated: as many are expected to be wrong as are.
  EXPECT_NEAR(r.expected_wrong, s.wrong.sum().item<double>(), 8);
  const Tensor structure = 0.6 * at::eye(3, doubles()) + 0.4 * at::eye(3, doubles()).roll(1, 1);
  EXPECT_LT((r.noise - structure).abs().max().item<double>(), 0.12);
  for (const int64_t i : r.suspects) {
    EXPECT_NE(r.suggested[i].item<int64_t>(), s.data.train.labels[i].item<int64_t>()) << i;
  }
  const LabelledExamples test = clouds(600, "test");
  const auto loss = [&](const TableModel& model) {
    return score_table(dense(test.features.to(at::kDouble)), test.labels, model.weights).loss;
  };
  EXPECT_LT(loss(r.model), 0.6 * loss(r.baseline));
}

// Of rows that are wrong with probability p, a share p is: in all of them together and in parts by p. What is
// seen differs from what is expected by no more than three standard errors of independent draws, and a tenth
// of the expectation for the model's own error.
TEST(CleanTable, ProbabilitiesThatLabelsAreWrongAreCalibrated) {
  const LabelledExamples train = clouds(1200, "train"), trusted = clouds(120, "valid");
  for (const double share : {0.15, 0.35}) {
    Random random(12);
    const Tensor wrong = random.uniform({1200}, doubles()).lt(share);
    const Tensor moved =
        (train.labels + 1 + random.uniform({1200}, doubles()).lt(0.5).to(at::kLong)).remainder(3);
    const CleanTableResult r =
        clean_table({.train = {train.features.to(at::kDouble), at::where(wrong, moved, train.labels)},
                     .trusted = {trusted.features.to(at::kDouble), trusted.labels},
                     .classes = 3},
                    {});
    const Tensor seen = wrong.to(at::kDouble);
    const auto expect_calibrated = [&](double from, double to) {
      const Tensor part = (r.wrong.ge(from) & r.wrong.lt(to)).nonzero().squeeze(1);
      const Tensor p = r.wrong.index_select(0, part);
      const double expected = p.sum().item<double>();
      const double error = std::sqrt((p * (1 - p)).sum().item<double>());
      EXPECT_NEAR(seen.index_select(0, part).sum().item<double>(), expected, 3 * error + 0.1 * expected)
          << share << ": of " << part.numel() << " rows with probabilities from " << from << " to " << to;
    };
    expect_calibrated(0, 1.1);
    for (const auto& [from, to] : {std::pair{0.0, 0.1}, std::pair{0.1, 0.5}, std::pair{0.5, 0.9}}) {
      expect_calibrated(from, to);
    }
    expect_calibrated(0.9, 1.1);
    // The matrix is shown as it was made: even noise.
    EXPECT_LT((r.noise - (at::eye(3, doubles()) * (1 - 1.5 * share) + share / 2)).abs().max().item<double>(),
              0.06)
        << r.noise;
  }
}

// The probability that a wrong label is ranked above a right one.
double rank_score(const Tensor& rank, const Tensor& wrong) {
  const Tensor of_wrong = rank.masked_select(wrong).unsqueeze(1), of_right = rank.masked_select(~wrong);
  return (of_wrong.gt(of_right).to(at::kDouble) + 0.5 * of_wrong.eq(of_right).to(at::kDouble))
      .mean()
      .item<double>();
}

// A few rows of many classes, some of them rare: a regression that has to find the classes and the noise
// together predicts held-out labels worse than one that takes all labels as right. The noise can be told from
// that one too.
TEST(CleanTable, FindsWrongLabelsWhereRowsAreFewAndClassesMany) {
  double f1 = 0, rank = 0;
  int64_t kept = 0;
  constexpr int64_t rows = 130, trials = 6, classes = 6, columns = 9;
  for (uint64_t seed = 1; seed <= trials; ++seed) {
    Random random(seed);
    const Tensor centres = 1.2 * random.normal({classes, columns}, doubles());
    const auto labels = [](int64_t count) {
      return (classes * (at::arange(count, doubles()) / static_cast<double>(count)).square()).to(at::kLong);
    };
    const auto features = [&](const Tensor& of) {
      return dense(centres.index_select(0, of) + random.normal({of.numel(), columns}, doubles()));
    };
    const Tensor truth = labels(rows), trusted = labels(21);
    const Tensor wrong = random.uniform({rows}, doubles()).lt(0.3);
    const Tensor moved = truth + 1 + (random.uniform({rows}, doubles()) * (classes - 1)).to(at::kLong);
    const CleanTableResult r =
        clean_table({.train = {features(truth), at::where(wrong, moved.remainder(classes), truth)},
                     .trusted = {features(trusted), trusted},
                     .classes = classes},
                    {});
    f1 += f1_score(flags(r, rows), wrong) / trials;
    rank += rank_score(r.wrong, wrong) / trials;
    kept += r.kept_baseline ? 1 : 0;
  }
  EXPECT_EQ(kept, 0);
  EXPECT_GT(f1, 0.8);
  EXPECT_GT(rank, 0.95);
}

TEST(CleanTable, DoesNotCareForScales) {
  const Tensor scales = at::tensor({1e-3, 1.0, 1e4, 30.0, 0.2}, doubles());
  const CleanTableResult even = clean_table(spoiled(0.4, at::ones({5}, doubles())).data, {});
  const CleanTableResult uneven = clean_table(spoiled(0.4, scales).data, {});
  EXPECT_LT((even.wrong - uneven.wrong).abs().max().item<double>(), 1e-6);
  const Tensor moved = uneven.model.weights.narrow(0, 0, 5) * scales.unsqueeze(1);
  EXPECT_LT((even.model.weights.narrow(0, 0, 5) - moved).abs().max().item<double>(), 1e-4);
}

TEST(CleanTable, FlagsNextToNothingWhereLabelsAreRight) {
  const Spoiled s = spoiled(0, at::ones({5}, doubles()));
  const CleanTableResult r = clean_table(s.data, {});
  EXPECT_LE(r.suspects.size(), 3U);
  EXPECT_LT(r.expected_wrong, 6);
}

TEST(CleanTable, WorksWithoutTrustedRowsAndSaysWhatIsLost) {
  Spoiled s = spoiled(0.25, at::ones({5}, doubles()));
  s.data.trusted = {};
  const CleanTableResult r = clean_table(s.data, {});
  EXPECT_GT(f1_score(flags(r, 150), s.wrong), 0.8);
  ASSERT_EQ(r.warnings.size(), 1U);
  EXPECT_THAT(r.warnings[0], ::testing::HasSubstr("there are no trusted rows"));
  EXPECT_TRUE(std::isnan(r.model.trusted_loss));
}

TEST(CleanTable, RefusesFoldsThatRowsDoNotAllow) {
  const Spoiled s = spoiled(0.4, at::ones({5}, doubles()));
  EXPECT_THROW(clean_table(s.data, {.folds = 151}), std::invalid_argument);
  EXPECT_THROW(clean_table(s.data, {.folds = 1}), std::invalid_argument);
}

// Two columns say everything, the others nothing.
TuneTableData with_useless_columns(int64_t rows, int64_t useless, uint64_t seed) {
  Random random(seed);
  const Tensor values = random.normal({rows, 2 + useless}, doubles());
  const Tensor score = values.select(1, 0) - values.select(1, 1) + random.normal({rows}, doubles());
  return {.train = {values, score.gt(0).to(at::kLong)}, .valid = {}, .classes = 2};
}

TEST(TuneTable, HoldsUselessColumnsWhereUnseenRowsGain) {
  const TuneTableData data = with_useless_columns(300, 40, 9);
  const TuneTableResult r = tune_table(data, {});
  ASSERT_FALSE(r.kept_single) << r.gain << " +- " << r.gain_error;
  EXPECT_GT(r.gain, r.gain_error);
  const Tensor x = r.freed.logarithms;
  EXPECT_LT(x.narrow(0, 0, 2).max().item<double>(), x.narrow(0, 2, 40).min().item<double>());
  const TuneTableData test = with_useless_columns(1000, 40, 10);
  const auto loss = [&](const TunedTable& tuned) {
    return score_table(test.train.features, test.train.labels, tuned.weights).loss;
  };
  EXPECT_LT(loss(r.freed), loss(r.single) - 0.02);
}

TEST(TuneTable, ReturnsOneRegulariserWhereColumnsAreAlike) {
  Random random(11);
  const Tensor values = random.normal({120, 6}, doubles());
  const Tensor score = values.sum(1) + random.normal({120}, doubles());
  const TuneTableData data{.train = {values, score.gt(0).to(at::kLong)}, .valid = {}, .classes = 2};
  const TuneTableResult r = tune_table(data, {});
  EXPECT_TRUE(r.kept_single);
  EXPECT_TRUE(r.returned().weights.equal(r.single.weights));
}

TEST(TuneTable, DoesNotCareForScales) {
  TuneTableData data = with_useless_columns(120, 3, 12);
  const TuneTableResult even = tune_table(data, {});
  data.train.features.dense = data.train.features.dense * at::tensor({1e4, 1e-3, 1.0, 50.0, 7.0}, doubles());
  const TuneTableResult uneven = tune_table(data, {});
  EXPECT_NEAR(even.single.held_out_loss, uneven.single.held_out_loss, 1e-9);
  TuneTableOptions as_it_is;
  as_it_is.standardize = false;
  EXPECT_GT(tune_table(data, as_it_is).single.held_out_loss, even.single.held_out_loss + 0.05);
}

// Gains between one and two standard errors are not returned: chance makes them one time in six.
TEST(TuneTable, AsksForTwoStandardErrors) {
  int64_t between = 0, clear = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const TuneTableResult r = tune_table(with_useless_columns(200, 25, 30 + seed), {});
    ASSERT_TRUE(r.searched);
    EXPECT_EQ(r.kept_single, !(r.gain > 2 * r.gain_error)) << seed;
    between += r.gain > r.gain_error && r.gain <= 2 * r.gain_error ? 1 : 0;
    clear += r.kept_single ? 0 : 1;
  }
  EXPECT_GT(between, 0);
  EXPECT_GT(clear, 0);
}

TEST(TuneTable, LeavesValidationRowsOutOfTheModel) {
  TuneTableData data = with_useless_columns(60, 3, 13);
  const TuneTableData valid = with_useless_columns(200, 3, 14);
  data.valid = valid.train;
  const TuneTableResult r = tune_table(data, {});
  EXPECT_NEAR(r.single.held_out_loss,
              score_table(valid.train.features, valid.train.labels, r.single.weights).loss, 1e-4);
}

}  // namespace
}  // namespace bilevel::test
