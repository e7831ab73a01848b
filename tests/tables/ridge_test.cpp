// Regression on tables: closed forms against the normal equations, derivatives against differences, and what
// tuning finds where the truth is known.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"
#include "bilevel/tables/folds.h"
#include "bilevel/tables/held_out_loss.h"
#include "bilevel/tables/lasso_path.h"
#include "bilevel/tables/penalty_groups.h"
#include "bilevel/tables/ridge_fit.h"
#include "bilevel/tables/softmax_fit.h"
#include "bilevel/tables/table_scores.h"
#include "bilevel/tables/tune_table.h"
#include "tests/support.h"
#include "tests/tables/features.h"

namespace bilevel::test {
namespace {

Tensor with_ones(const Tensor& values) {
  return at::cat({values, at::ones({values.size(0), 1}, doubles())}, 1);
}

// The normal equations of all coefficients with the intercept among them.
Tensor by_normal_equations(const Tensor& rows, const Tensor& targets, const Tensor& penalty) {
  const Tensor all = at::cat({penalty, at::zeros({1}, doubles())});
  return at::linalg_solve(rows.t().mm(rows) + at::diag(all), rows.t().mm(targets));
}

TEST(RidgeSystem, SolvesTheNormalEquationsInBothForms) {
  Random random(1);
  for (const auto& [count, columns] : {std::pair{40, 6}, std::pair{12, 30}}) {
    const Tensor rows = with_ones(random.normal({count, columns}, doubles()) + 0.5);
    const Tensor targets = random.normal({count, 1}, doubles()) + 3;
    const Tensor penalty = random.normal({columns}, doubles()).exp();
    RidgeSystem system(rows, targets);
    system.set_penalty(penalty);
    EXPECT_LT(largest(system.weights() - by_normal_equations(rows, targets, penalty)), 1e-10) << columns;
    const Tensor b = random.normal({columns, 1}, doubles());
    const Tensor centred = system.centred(rows);
    const Tensor product =
        centred.t().mm(centred).mm(system.solve(b)) + penalty.unsqueeze(1) * system.solve(b);
    EXPECT_LT(largest(product - b), 1e-10) << columns;
  }
}

// Rows of a problem with its folds; `classes` 0: a regression.
HeldOutRows held_out_rows(int64_t count, int64_t columns, int64_t classes) {
  Random random(2);
  HeldOutRows rows;
  rows.scaled = with_ones(random.normal({count, columns}, doubles()));
  const Tensor score = rows.scaled.select(1, 0) + 0.5 * rows.scaled.select(1, 1);
  if (classes == 0) {
    rows.loss = TableLoss::squared;
    rows.labels = at::zeros({count}, at::kLong);
    rows.targets = (score + 0.3 * random.normal({count}, doubles()) + 7).unsqueeze(1);
  } else {
    rows.labels = (score * 1.5 + 1).round().clamp(0, static_cast<double>(classes - 1)).to(at::kLong);
    rows.targets = label_matrix(rows.labels, classes);
  }
  rows.folds = 3;
  rows.fold = stratified_folds(rows.labels, std::max<int64_t>(classes, 1), 3, random);
  return rows;
}

// By central differences of each number of the groups.
void expect_derivative(HeldOutLoss& loss, const PenaltyGroups& groups, double width, double tolerance) {
  Random random(3);
  const Tensor x = random.normal({groups.count()}, doubles());
  (void)loss(groups.spread(x));
  const Tensor derivative = groups.gathered(loss.gradient());
  double steepest = 0;
  for (int64_t j = 0; j < groups.count(); ++j) {
    Tensor step = at::zeros({groups.count()}, doubles());
    step[j] = width;
    const double difference = (loss(groups.spread(x + step)) - loss(groups.spread(x - step))) / (2 * width);
    EXPECT_NEAR(derivative[j].item<double>(), difference, tolerance) << j;
    steepest = std::max(steepest, std::abs(difference));
  }
  EXPECT_GT(steepest, 20 * tolerance) << "the test says nothing";
}

TEST(HeldOutLoss, OfSquaresHasTheDerivativeThatDifferencesSay) {
  for (const auto& [count, columns] : {std::pair{30, 4}, std::pair{15, 25}}) {
    const HeldOutRows rows = held_out_rows(count, columns, 0);
    const std::unique_ptr<HeldOutLoss> loss = HeldOutLoss::of(rows);
    expect_derivative(*loss, PenaltyGroups(columns, {}, 0), 1e-4, 1e-8);
  }
  const HeldOutRows rows = held_out_rows(30, 4, 0);
  const std::unique_ptr<HeldOutLoss> loss = HeldOutLoss::of(rows);
  expect_derivative(*loss, PenaltyGroups(4, at::tensor({0, 1, 1, 0}, at::kLong), 0), 1e-4, 1e-8);
}

// Fitted more exactly than tuning needs it.
TEST(CrossFit, HasTheDerivativesOfGroupsAndClasses) {
  const HeldOutRows rows = held_out_rows(60, 4, 3);
  CrossFit cross(rows.scaled, rows.fold, 3, 3);
  const auto loss = [&](const Tensor& logarithms) {
    const Tensor scores = cross.held_out_scores({rows.targets}, logarithms, 1e-11);
    return -(scores.log_softmax(1) * rows.targets).sum().item<double>();
  };
  const Tensor pairs = at::tensor({0, 1, 1, 0}, at::kLong);
  for (const PenaltyGroups& groups :
       {PenaltyGroups(4, {}, 3), PenaltyGroups(4, pairs, 3), PenaltyGroups(4, pairs, 0)}) {
    Random random(3);
    const Tensor x = random.normal({groups.count()}, doubles());
    const Tensor scores = cross.held_out_scores({rows.targets}, groups.spread(x), 1e-11);
    const Tensor derivative = groups.gathered(cross.derivative(scores.softmax(1) - rows.targets, 1e-11));
    for (int64_t j = 0; j < groups.count(); ++j) {
      Tensor step = at::zeros({groups.count()}, doubles());
      step[j] = 5e-4;
      const double difference = (loss(groups.spread(x + step)) - loss(groups.spread(x - step))) / 1e-3;
      EXPECT_NEAR(derivative[j].item<double>(), difference, 1e-6) << j << " of " << groups.count();
    }
    EXPECT_GT(largest(derivative), 1e-2) << "the test says nothing";
  }
}

TEST(HeldOutLoss, OfSquaresIsThatOfModelsFittedByHand) {
  const HeldOutRows rows = held_out_rows(30, 4, 0);
  const std::unique_ptr<HeldOutLoss> loss = HeldOutLoss::of(rows);
  const Tensor x = at::tensor({0.5, -1.0, 1.5, 0.0}, doubles());
  double squares = 0;
  for (int64_t k = 0; k < 3; ++k) {
    const Tensor held = rows.fold.eq(k).nonzero().squeeze(1), other = rows.fold.ne(k).nonzero().squeeze(1);
    const Tensor weights =
        by_normal_equations(rows.scaled.index_select(0, other), rows.targets.index_select(0, other), x.exp());
    squares += (rows.scaled.index_select(0, held).mm(weights) - rows.targets.index_select(0, held))
                   .square()
                   .sum()
                   .item<double>();
  }
  EXPECT_NEAR((*loss)(x), 0.5 * std::log(squares / 30), 1e-12);
  EXPECT_NEAR(loss->losses().mean().item<double>(), squares / 30, 1e-12);
  const double variance = rows.targets.var(false).item<double>();
  EXPECT_NEAR(loss->score(), 1 - squares / 30 / variance, 1e-12);
}

// Where the lasso ends, every slope of the loss is the threshold's or less, and no slope points further.
TEST(LassoPath, EndsWhereTheLassoIsFlat) {
  Random random(10);
  const Tensor rows = random.normal({40, 8}, doubles());
  const Tensor targets = rows.select(1, 0) - 2 * rows.select(1, 1) + 0.1 * random.normal({40}, doubles());
  const Tensor gram = rows.t().mm(rows), product = rows.t().mv(targets);
  const Tensor thresholds = 3 + random.uniform({8}, doubles());
  const Tensor w = fit_lasso(gram, product, thresholds, at::zeros({8}, doubles()));
  const Tensor slope = product - gram.mv(w);
  const Tensor chosen = w.ne(0);
  EXPECT_GE(chosen.sum().item<int64_t>(), 2);
  EXPECT_LT(chosen.sum().item<int64_t>(), 8);
  EXPECT_LT(largest((slope - thresholds * w.sign()).masked_select(chosen)), 1e-9);
  EXPECT_LE((slope.abs() - thresholds).max().item<double>(), 1e-9);
}

// Ridge regression with the penalties of a path is the lasso itself.
TEST(LassoPath, GivesPenaltiesWithWhichRidgeRegressionIsTheLasso) {
  const HeldOutRows rows = held_out_rows(60, 6, 0);
  for (const bool adaptive : {false, true}) {
    const LassoPath path = lasso_path(rows, adaptive ? at::zeros({6}, doubles()) : Tensor());
    const Tensor x = rows.scaled.narrow(1, 0, 6);
    const Tensor centred = x - x.mean(0), y = (rows.targets - rows.targets.mean()).squeeze(1);
    const Tensor gram = centred.t().mm(centred), product = centred.t().mv(y);
    Tensor sizes = at::ones({6}, doubles());
    if (adaptive) {
      sizes = at::linalg_solve(gram + at::eye(6, doubles()), product.unsqueeze(1)).squeeze(1).abs();
      sizes = sizes / sizes.max();
    }
    const Tensor lasso = fit_lasso(gram, product, path.lambda / sizes, at::zeros({6}, doubles()));
    RidgeSystem system(rows.scaled, rows.targets);
    system.set_penalty(path.logarithms.exp());
    EXPECT_LT(largest(system.weights().narrow(0, 0, 6).squeeze(1) - lasso), 1e-5);
    EXPECT_EQ(path.differences.numel(), 60);
  }
}

TEST(SoftmaxFit, TakesAPenaltyForEachColumnAndClass) {
  const HeldOutRows rows = held_out_rows(60, 4, 3);
  Random random(4);
  const Tensor penalty = penalties(random.normal({4, 3}, doubles()), 60);
  const SoftmaxFit fit =
      fit_softmax(rows.scaled, {rows.targets}, penalty, at::zeros({5, 3}, doubles()), 1e-10);
  const Tensor slope = rows.scaled.t().mm(rows.scaled.mm(fit.weights).softmax(1) - rows.targets) / 60;
  EXPECT_LT(largest(slope + penalty * fit.weights), 1e-9);
}

// Three columns of many say all there is.
TuneTableData sparse_truth(int64_t count, int64_t columns, uint64_t seed) {
  Random random(seed);
  const Tensor values = random.normal({count, columns}, doubles());
  const Tensor targets = 3 * values.select(1, 0) - 2 * values.select(1, 1) + values.select(1, 2) +
                         random.normal({count}, doubles()) + 50;
  return {.train = {values, targets}, .valid = {}, .classes = 1};
}

TuneTableOptions squared() {
  TuneTableOptions options;
  options.loss = TableLoss::squared;
  return options;
}

TEST(TuneTable, HoldsUselessColumnsOfARegression) {
  const TuneTableData data = sparse_truth(120, 40, 5), test = sparse_truth(1000, 40, 6);
  const TuneTableResult r = tune_table(data, squared());
  ASSERT_FALSE(r.kept_single) << r.gain << " +- " << r.gain_error;
  const auto loss = [&](const TunedTable& tuned) {
    return score_numbers(test.train.features, test.train.labels, tuned.weights).loss;
  };
  // 1 is the noise's variance: what is above it falls to a half or less.
  EXPECT_LT(loss(r.freed) - 1, 0.5 * (loss(r.single) - 1));
  const Tensor x = r.freed.logarithms;
  EXPECT_LT(x.narrow(0, 0, 3).max().item<double>(), x.narrow(0, 3, 37).mean().item<double>());
}

TEST(LassoPath, SharesFollowTheLikelihoodOfHeldOutRows) {
  const Tensor ones = at::ones({20}, doubles());
  const std::vector<double> shares = likelihood_shares({ones, ones * std::sqrt(1.1), ones * 100}, 0);
  EXPECT_NEAR(shares[1] / shares[0], std::pow(1.1, -10), 1e-9);
  EXPECT_NEAR(shares[0] + shares[1], 1, 1e-12);
  EXPECT_LT(shares[2], 1e-30);
  // As good on other rows: the likelihoods are the same, and where one row decides it counts as one row.
  Tensor first = ones.clone(), second = ones.clone();
  first.narrow(0, 0, 10) *= 2;
  second.narrow(0, 10, 10) *= 2;
  const std::vector<double> even = likelihood_shares({first, second}, 0);
  EXPECT_NEAR(even[0], 0.5, 0.1);
  Tensor lucky = ones.clone(), one_row = ones.clone();
  one_row[0] = 4;  // (1 + 15/20)^-10 = 0.004 by the mean squares alone
  EXPECT_GT(likelihood_shares({lucky, one_row}, 0)[1], 0.02);
}

// All columns count alike: the lasso has the smaller held-out loss by chance alone, and costs what it leaves
// out.
TEST(TuneTable, LosesLittleToOnePenaltyWhereAllColumnsCount) {
  double single = 0, returned = 0;
  int64_t averaged = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Random random(200 + seed);
    const auto drawn = [&](int64_t count) -> TuneTableData {
      const Tensor values = random.normal({count, 10}, doubles());
      return {
          .train = {values, values.sum(1) + random.normal({count}, doubles())}, .valid = {}, .classes = 1};
    };
    const TuneTableResult r = tune_table(drawn(50), squared());
    const TuneTableData test = drawn(1000);
    single += score_numbers(test.train.features, test.train.labels, r.single.weights).loss - 1;
    returned += score_numbers(test.train.features, test.train.labels, r.returned().weights).loss - 1;
    averaged += r.averaged ? 1 : 0;
    EXPECT_LE(r.returned().held_out_loss, r.single.held_out_loss) << seed;
  }
  EXPECT_GT(averaged, 0);
  EXPECT_LT(returned, 1.03 * single);
}

TEST(TuneTable, GivesARegressionInTheUsersUnits) {
  TuneTableData data = sparse_truth(60, 4, 7);
  const TuneTableResult r = tune_table(data, squared());
  data.train.features.dense = data.train.features.dense * at::tensor({1e3, 1e-2, 1.0, 50.0}, doubles()) + 20;
  data.train.labels = data.train.labels * 1000;
  const TuneTableResult other = tune_table(data, squared());
  EXPECT_NEAR(other.returned().held_out_score, r.returned().held_out_score, 1e-9);
  EXPECT_NEAR(other.returned().held_out_loss, r.returned().held_out_loss * 1e6, 1e-2);
  const Tensor slopes = r.returned().weights.narrow(0, 0, 4).squeeze(1) * 1000;
  const Tensor scaled =
      other.returned().weights.narrow(0, 0, 4).squeeze(1) * at::tensor({1e3, 1e-2, 1.0, 50.0}, doubles());
  EXPECT_LT(largest(slopes - scaled), 1e-5);
}

TEST(TuneTable, PredictsNextToNothingWhereNothingCanBePredicted) {
  Random random(8);
  const auto drawn = [&](int64_t count) -> TuneTableData {
    return {.train = {random.normal({count, 10}, doubles()), random.normal({count}, doubles())},
            .valid = {},
            .classes = 1};
  };
  const TuneTableResult r = tune_table(drawn(80), squared());
  const TuneTableData test = drawn(1000);
  EXPECT_GT(score_numbers(test.train.features, test.train.labels, r.returned().weights).determination, -0.05);
  EXPECT_LE(r.returned().held_out_loss, r.single.held_out_loss);
}

// The first half of the columns says something, each a little; the others nothing.
TEST(TuneTable, FreesOneRegulariserPerGroup) {
  Random random(9);
  const Tensor values = random.normal({100, 30}, doubles());
  const Tensor targets = values.narrow(1, 0, 15).sum(1) + 2 * random.normal({100}, doubles());
  TuneTableData data{.train = {values, targets}, .valid = {}, .classes = 1};
  data.groups = at::arange(30, at::kLong).ge(15).to(at::kLong);
  const TuneTableResult r = tune_table(data, squared());
  ASSERT_FALSE(r.kept_single) << r.gain << " +- " << r.gain_error;
  const Tensor x = r.returned().logarithms;
  EXPECT_EQ(x.narrow(0, 0, 15).max().item<double>(), x.narrow(0, 0, 15).min().item<double>());
  EXPECT_EQ(x.narrow(0, 15, 15).max().item<double>(), x.narrow(0, 15, 15).min().item<double>());
  EXPECT_GT(x[15].item<double>(), x[0].item<double>() + 1);
  data.groups = at::zeros({30}, at::kLong);
  EXPECT_FALSE(tune_table(data, squared()).searched);
  data.groups = at::zeros({29}, at::kLong);
  EXPECT_THROW(tune_table(data, squared()), std::invalid_argument);
}

TEST(TuneTable, RefusesClassesOfARegression) {
  const TuneTableData data = sparse_truth(60, 4, 7);
  TuneTableOptions options = squared();
  options.per_class = true;
  EXPECT_THROW(tune_table(data, options), std::invalid_argument);
}

}  // namespace
}  // namespace bilevel::test
