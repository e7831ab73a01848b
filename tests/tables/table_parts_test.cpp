// The parts of jobs on tables, each against a closed form, differences or counts.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/tables/clean_table.h"
#include "bilevel/tables/cross_fit.h"
#include "bilevel/tables/folds.h"
#include "bilevel/tables/line_minimum.h"
#include "bilevel/tables/noise_matrix.h"
#include "bilevel/tables/scaled_table.h"
#include "bilevel/tables/softmax_fit.h"
#include "bilevel/tables/table_scores.h"
#include "tests/support.h"
#include "tests/tables/features.h"

namespace bilevel::test {
namespace {

Features sparse(const Tensor& values) {
  const Tensor where = values.nonzero();
  Features features;
  features.sparse.rows = values.size(0);
  features.sparse.columns = values.size(1);
  const Tensor counts = values.ne(0).sum(1);
  features.sparse.row_start = at::cat({at::zeros({1}, at::kLong), counts.cumsum(0)});
  features.sparse.column = where.select(1, 1).to(
      features.sparse.column.defined() ? features.sparse.column.scalar_type() : at::kLong);
  features.sparse.value = values.masked_select(values.ne(0));
  return features;
}

TEST(TableScale, GivesCoefficientsInTheUsersUnits) {
  Random random(1);
  Tensor values = random.normal({40, 3}, doubles());
  values.select(1, 1).mul_(1e4).add_(7e5);
  values.select(1, 2).fill_(3);  // constant
  const TableScale scale({dense(values)}, true);
  const Tensor scaled = scale.scaled(dense(values));
  EXPECT_LT(largest(scaled.narrow(1, 0, 2).mean(0)), 1e-9);
  EXPECT_LT(largest(scaled.narrow(1, 0, 2).std(0, false) - 1), 1e-9);
  EXPECT_EQ(largest(scaled.select(1, 2)), 0);
  EXPECT_EQ(largest(scaled.select(1, 3) - 1), 0);
  const Tensor weights = random.normal({4, 5}, doubles());
  EXPECT_LT(largest(table_scores(dense(values), scale.in_users_units(weights)) - scaled.mm(weights)), 1e-9);
}

TEST(TableScale, DoesNotDependOnTheUnitsOfAColumn) {
  const Tensor values = Random(3).normal({30, 1}, doubles()) + 0.5;
  const Tensor expected = TableScale({dense(values)}, true).scaled(dense(values));
  for (const int exponent : {-700, -500, 500, 700}) {  // whose squares no double holds
    const Tensor other = values * std::ldexp(1.0, exponent);
    EXPECT_TRUE(TableScale({dense(other)}, true).scaled(dense(other)).equal(expected)) << exponent;
  }
  // A time in microseconds: its spread is in the last digits.
  const Tensor late = values + 1e12;
  EXPECT_LT(largest(TableScale({dense(late)}, true).scaled(dense(late)) - expected), 1e-3);
}

TEST(TableScale, TreatsASparseTableAsItsDenseForm) {
  Random random(2);
  const Tensor values = random.normal({30, 4}, doubles()) * random.uniform({30, 4}, doubles()).gt(0.6);
  const TableScale from_dense({dense(values)}, true), from_sparse({sparse(values)}, true);
  EXPECT_TRUE(from_dense.scaled(dense(values)).equal(from_sparse.scaled(sparse(values))));
}

TEST(Folds, DealOutEveryClassEvenly) {
  Random random(3);
  const Tensor labels =
      at::cat({at::zeros({13}, at::kLong), at::ones({7}, at::kLong), at::full({4}, 2, at::kLong)});
  const Tensor fold = stratified_folds(labels, 3, 5, random);
  const auto spread = [](const Tensor& of) {
    const Tensor counts = at::bincount(of, {}, 5);
    return counts.max().item<int64_t>() - counts.min().item<int64_t>();
  };
  EXPECT_LE(spread(fold), 1);
  for (int64_t k = 0; k < 3; ++k) EXPECT_LE(spread(fold.masked_select(labels.eq(k))), 1) << k;
}

TEST(LineMinimum, FindsAParabolas) {
  int calls = 0;
  const LineMinimum found =
      line_minimum([&](double x) { return ++calls, (x - 0.7) * (x - 0.7) + 2; }, -3, 4, 1e-3);
  EXPECT_NEAR(found.at, 0.7, 1e-3);
  EXPECT_NEAR(found.value, 2, 1e-6);
  EXPECT_LT(calls, 25);
}

struct Small {
  Tensor rows, labels, targets, penalty;
  Small() {
    Random random(4);
    rows = at::cat({random.normal({30, 3}, doubles()), at::ones({30, 1}, doubles())}, 1);
    labels = rows.select(1, 0).gt(0).to(at::kLong) + rows.select(1, 1).gt(0.5).to(at::kLong);
    targets = 0.8 * label_matrix(labels, 3) + 0.2 / 3;
    penalty = penalties(at::full({3}, 0.3, doubles()), 30);
  }
};

// The objective as its definition has it.
double objective(const Small& s, const SoftmaxTargets& t, const Tensor& w) {
  const Tensor logs = s.rows.mm(w).log_softmax(1);
  const Tensor losses =
      t.kind == TargetKind::soft_labels ? -(logs * t.values).sum(1) : -(logs.exp() * t.values).sum(1).log();
  return losses.mean().item<double>() + 0.5 * (s.penalty.unsqueeze(1) * w * w).sum().item<double>();
}

TEST(SoftmaxFit, EndsWhereTheObjectiveIsFlat) {
  const Small s;
  for (const TargetKind kind : {TargetKind::soft_labels, TargetKind::likelihoods}) {
    const SoftmaxTargets targets{s.targets, kind};
    const SoftmaxFit fit = fit_softmax(s.rows, targets, s.penalty, at::zeros({4, 3}, doubles()), 1e-9);
    EXPECT_TRUE(fit.converged);
    for (int64_t j = 0; j < 4; ++j) {
      for (int64_t k = 0; k < 3; ++k) {
        Tensor step = at::zeros({4, 3}, doubles());
        step[j][k] = 1e-4;
        const double slope =
            (objective(s, targets, fit.weights + step) - objective(s, targets, fit.weights - step)) / 2e-4;
        EXPECT_NEAR(slope, 0, 1e-7) << j << ' ' << k;
      }
    }
  }
}

TEST(CrossFit, HasTheDerivativeThatDifferencesSay) {
  const Small s;
  Random random(5);
  const Tensor fold = stratified_folds(s.labels, 3, 3, random);
  CrossFit cross(s.rows, fold, 3, 3);
  const Tensor x = at::tensor({0.5, -1.0, 1.5}, doubles());
  const auto loss = [&](const Tensor& logarithms) {
    const Tensor scores = cross.held_out_scores({s.targets}, logarithms, 1e-11);
    return -(scores.log_softmax(1) * s.targets).sum().item<double>();
  };
  for (int64_t j = 0; j < 3; ++j) {
    Tensor step = at::zeros({3}, doubles());
    step[j] = 1e-4;
    const double difference = (loss(x + step) - loss(x - step)) / 2e-4;
    const Tensor scores = cross.held_out_scores({s.targets}, x, 1e-11);
    const Tensor derivative = cross.derivative(scores.softmax(1) - s.targets, 1e-11);
    EXPECT_NEAR(derivative[j].item<double>(), difference, 1e-6) << j;
    EXPECT_GT(std::abs(difference), 1e-3) << "the test says nothing";
  }
}

// With certain predictions T is how often each label was given.
TEST(NoiseMatrix, IsTheSharesOfGivenLabelsWherePredictionsAreCertain) {
  const Tensor truth = at::arange(600, at::kLong).remainder(3);
  const Tensor wrong = at::arange(600, at::kLong).lt(150);
  const Tensor given = at::where(wrong, (truth + 1).remainder(3), truth);  // a quarter becomes the next class
  const NoiseEvidence evidence{label_matrix(truth, 3), given};
  const Tensor expected = 0.75 * at::eye(3, doubles()) + 0.25 * at::eye(3, doubles()).roll(1, 1);
  const Tensor weak = estimate_noise(evidence, even_noise(3, 0.3), 0.01);
  EXPECT_LT(largest(weak - expected), 1e-3);
  const Tensor strong = estimate_noise(evidence, even_noise(3, 0.3), 1e6);
  EXPECT_LT(largest(strong - even_noise(3, 151.0 / 604)), 1e-3);
  const Tensor bounded = estimate_noise(evidence, even_noise(3, 0.3), 0.01, 0.9);
  EXPECT_LT(largest(bounded.diagonal() - 0.9), 1e-12);
  EXPECT_LT(largest(bounded.sum(1) - 1), 1e-12);
  Random random(6);
  const Tensor fold = stratified_folds(given, 3, 5, random);
  EXPECT_EQ(choose_noise_strength(evidence, weak, fold, 5).strength,
            1);  // the structure is worth its numbers
}

TEST(NoiseMatrix, KeepsToEvenNoiseWhereThereIsNoStructure) {
  Random random(7);
  const Tensor truth = at::arange(120, at::kLong).remainder(6);
  Tensor given = truth.clone();
  for (int64_t i = 0; i < 120; ++i) {
    if (random.uniform() < 0.3) given[i] = (truth[i].item<int64_t>() + 1 + random.below(5)) % 6;
  }
  const NoiseEvidence evidence{label_matrix(truth, 6), given};
  const Tensor fold = stratified_folds(given, 6, 5, random);
  EXPECT_GE(choose_noise_strength(evidence, even_noise(6, 0.3), fold, 5).strength, 30);
}

// Flagging k of them is expected to have F1 = 2 sum of the k / (k + sum of all).
TEST(CleanTable, FlagsWhatMaximisesTheExpectedF1) {
  EXPECT_EQ(most_expected_f1(at::tensor({1.0, 1.0, 0.1, 0.1}, doubles())), 2);
  EXPECT_EQ(most_expected_f1(at::tensor({0.4, 0.4, 0.3, 0.01}, doubles())), 3);
}

}  // namespace
}  // namespace bilevel::test
