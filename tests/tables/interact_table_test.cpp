// Tasks of a table that pull at each other: Newton's solutions against separate and pooled regressions, the
// derivative against differences, and what is returned where the truth is known.

#include "bilevel/tables/interact_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/tables/coupled_fit.h"
#include "bilevel/tables/folds.h"
#include "bilevel/tables/held_out_tasks.h"
#include "bilevel/tables/scaled_table.h"
#include "bilevel/tables/softmax_fit.h"
#include "bilevel/tables/table_scores.h"
#include "tests/support.h"
#include "tests/tables/features.h"

namespace bilevel::test {
namespace {

Tensor alike_pairs(int64_t tasks, double strength) {
  return at::full({tasks, tasks}, strength, doubles()).fill_diagonal_(0);
}

// Three tasks of different sizes and three classes, in three folds.
TaskRows three_tasks(int64_t count = 90) {
  Random random(5);
  TaskRows rows;
  rows.tasks = rows.classes = rows.folds = 3;
  rows.scaled = at::cat({random.normal({count, 3}, doubles()), at::ones({count, 1}, doubles())}, 1);
  rows.task = at::arange(count).remainder(7).clamp_max(2);
  const Tensor slope = 1 - 0.6 * rows.task.to(at::kDouble);
  const Tensor score = slope * rows.scaled.select(1, 0) + 0.7 * random.normal({count}, doubles());
  rows.labels = (score + 1).round().clamp(0, 2).to(at::kLong);
  rows.fold = at::arange(count).div(2, "floor").remainder(3);
  return rows;
}

// All rows in every fit.
Tensor models_of(const TaskRows& rows, const Pulls& pulls) {
  FitCounts counts;
  const Tensor models = HeldOutTasks(rows).refit(pulls, counts);
  EXPECT_EQ(counts.unconverged, 0);
  return models;
}

// penalties() has 1e-9 for the intercept where the coupled fit has 1e-3 of the sum.
Tensor alone(const TaskRows& rows, double rho) {
  const auto count = static_cast<double>(rows.size());
  Tensor penalty = at::full({rows.scaled.size(1)}, 2 * rho / count, doubles());
  penalty[-1] = 2e-3 / count;
  const SoftmaxFit fit = fit_softmax(rows.scaled, {label_matrix(rows.labels, rows.classes)}, penalty,
                                     at::zeros({rows.scaled.size(1), rows.classes}, doubles()), 1e-12);
  return fit.weights;
}

TEST(CoupledFit, WithoutPullsIsEachTaskAloneAndWithStrongOnesIsOneModel) {
  const TaskRows rows = three_tasks();
  const Tensor apart = models_of(rows, {alike_pairs(3, 0), 0.8});
  for (int64_t t = 0; t < 3; ++t) {
    const TaskRows mine = rows.subset(rows.task.eq(t).nonzero().squeeze(1));
    EXPECT_LT(largest(apart[t] - alone(mine, 0.8)), 1e-6) << t;
  }
  // Each of three models is held by rho: one is held by all three.
  const Tensor together = models_of(rows, {alike_pairs(3, 1e7), 0.8});
  Tensor penalty = alone(rows, 3 * 0.8);
  EXPECT_LT(largest(together[0] - together[2]), 1e-5);
  EXPECT_LT(largest(together[0] - penalty), 1e-3);
}

Tensor three_pulls() {
  return at::tensor({0.0, 2.0, 0.3, 2.0, 0.0, 1.0, 0.3, 1.0, 0.0}, doubles()).view({3, 3});
}

// sum_i CE_i + sum_ij C_ij |w_i - w_j|^2 + rho sum |w|^2 as the header has it, with a ridge on intercepts.
double by_the_formula(const TaskRows& rows, const Tensor& models, const Pulls& pulls) {
  double loss = task_losses(rows, models).sum().item<double>();
  Tensor held = at::full({models.size(1)}, pulls.regularizer, doubles()),
         pull = at::ones({models.size(1)}, doubles());
  held[-1] = 1e-3;
  pull[-1] = pulls.intercepts;
  loss += (models.square().sum(2) * held).sum().item<double>();
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      const Tensor apart = (models[i] - models[j]).square().sum(1) * pull;
      loss += pulls.coupling[i][j].item<double>() * apart.sum().item<double>();
    }
  }
  return loss;
}

TEST(CoupledFit, IsTheMinimumOfItsFormula) {
  const TaskRows rows = three_tasks();
  const Pulls pulls{three_pulls(), 0.5, 0.2};
  const Tensor models = models_of(rows, pulls);
  const double least = by_the_formula(rows, models, pulls);
  Random random(6);
  for (int trial = 0; trial < 20; ++trial) {
    const Tensor step = random.normal(models.sizes(), doubles());
    const double up = by_the_formula(rows, models + 1e-4 * step, pulls) - least;
    const double down = by_the_formula(rows, models - 1e-4 * step, pulls) - least;
    EXPECT_GT(std::min(up, down), 0) << trial;
    EXPECT_LT(std::abs(up - down), 1e-2 * (up + down)) << trial;  // no slope is left
  }
}

TEST(HeldOutTasks, HasTheDerivativeThatDifferencesSay) {
  HeldOutTasks loss(three_tasks());
  const auto value = [&](const Pulls& pulls) { return loss(pulls); };
  for (const double intercepts : {1.0, 0.1}) {
    const Pulls pulls{three_pulls(), 0.5, intercepts};
    (void)value(pulls);
    const PullDerivative derivative = loss.derivative();
    const double width = 1e-2;
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = i + 1; j < 3; ++j) {
        const auto moved = [&](double by) {
          Pulls there = pulls;
          there.coupling = pulls.coupling.clone();
          there.coupling[i][j] += by;
          there.coupling[j][i] += by;
          return value(there);
        };
        const double difference = (moved(width) - moved(-width)) / (2 * width);
        EXPECT_NEAR(derivative.coupling[i][j].item<double>(), difference, 2e-6) << i << j;
        EXPECT_GT(std::abs(difference), 2e-5) << "the test says nothing";
      }
    }
    const auto moved = [&](double by) { return value({pulls.coupling, pulls.regularizer + by, intercepts}); };
    EXPECT_NEAR(derivative.regularizer, (moved(3e-3) - moved(-3e-3)) / 6e-3, 2e-6);
  }
}

TEST(HeldOutTasks, IsTheLossOfModelsThatHaveNotSeenTheFold) {
  const TaskRows rows = three_tasks();
  HeldOutTasks loss(rows);
  const Pulls pulls{three_pulls(), 0.5};
  const double value = loss(pulls);
  double sum = 0;
  for (int64_t k = 0; k < 3; ++k) {
    const TaskRows others = rows.subset(rows.fold.ne(k).nonzero().squeeze(1));
    const TaskRows held = rows.subset(rows.fold.eq(k).nonzero().squeeze(1));
    sum += task_losses(held, models_of(others, pulls)).sum().item<double>();
  }
  EXPECT_NEAR(value, sum / 90, 1e-8);
}

int64_t peak_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t value = 0;
    if (word == "VmHWM:" && status >> value) return value;
  }
  return 0;
}

// As the padded length of all, a task of 40,000 rows beside 300 of two would take gigabytes.
TEST(HeldOutTasks, ALargeTaskBesideManySmallOnesTakesNoMoreThanItsRows) {
  const int64_t tiny = 300, large = 40'000, count = 2 * tiny + large;
  Random random(11);
  TaskRows rows;
  rows.tasks = tiny + 1;
  rows.classes = rows.folds = 2;
  rows.scaled = at::cat({random.normal({count, 3}, doubles()), at::ones({count, 1}, doubles())}, 1);
  rows.task = at::arange(count).div(2, "floor").clamp_max(tiny);
  rows.labels = (rows.scaled.select(1, 0) + random.normal({count}, doubles())).gt(0).to(at::kLong);
  rows.fold = at::arange(count).remainder(2);
  const int64_t before = peak_kilobytes();
  ASSERT_GT(before, 0);
  HeldOutTasks loss(rows);
  const Pulls pulls{alike_pairs(rows.tasks, 0.01), 0.5};
  const double value = loss(pulls);
  FitCounts counts;
  const Tensor models = loss.refit(pulls, counts);
  EXPECT_LT(peak_kilobytes() - before, 200'000);
  EXPECT_LT(value, 0.6);
  // The large task hardly feels the others.
  EXPECT_NEAR((models[tiny][0][1] - models[tiny][0][0]).item<double>(), 1.7, 0.1);
}

TEST(HeldOutTasks, RowsThatOverflowStopWithTheReason) {
  TaskRows rows = three_tasks();
  rows.scaled[28].narrow(0, 0, 3).fill_(1.7e308);
  try {
    HeldOutTasks loss(rows);
    const double value = loss({three_pulls(), 1e-3});
    ADD_FAILURE() << "the loss is " << value;
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("too large"), std::string::npos) << error.what();
  }
}

// Tasks whose slopes are +-1 times the same direction: `sign` of each task.
InteractTableData signed_tasks(const std::vector<double>& sign, int64_t rows_each, uint64_t seed) {
  Random random(seed);
  InteractTableData data;
  data.tasks = static_cast<int64_t>(sign.size());
  data.classes = 2;
  const int64_t count = data.tasks * rows_each;
  data.task = at::arange(count).remainder(data.tasks);
  const Tensor x = random.normal({count, 6}, doubles());
  const Tensor slope = at::tensor(sign, doubles()).index_select(0, data.task);
  const Tensor score = 2 * slope * (x.select(1, 0) - x.select(1, 1)) + random.normal({count}, doubles());
  data.train.labels = score.gt(0).to(at::kLong);
  // Units and origins that have nothing to do with each other.
  data.train.features.dense = x * at::tensor({1.0, 1e3, 1e-3, 5.0, 1.0, 1.0}, doubles()) +
                              at::tensor({0., 9e3, 1., 0., 0., -2.}, doubles());
  return data;
}

TEST(InteractTable, OppositeTasksPullOnlyAtTheirLike) {
  const InteractTableResult found = interact_table(signed_tasks({1, 1, -1, -1}, 25, 1), {});
  EXPECT_TRUE(found.per_pair) << found.gain << " +- " << found.gain_error;
  const Tensor& c = found.learned.coupling;
  const double within = (c[0][1] + c[2][3]).item<double>() / 2;
  const double across = c.narrow(0, 0, 2).narrow(1, 2, 2).mean().item<double>();
  EXPECT_GT(within, 2 * across);
  EXPECT_LT(found.learned.held_out_loss, found.independent.held_out_loss);
  EXPECT_LT(found.learned.held_out_loss, found.pooled.held_out_loss - 0.1);
}

TEST(InteractTable, TasksThatAreOneKeepOneStrength) {
  const InteractTableData data = signed_tasks({1, 1, 1}, 20, 2);
  const InteractTableResult found = interact_table(data, {});
  EXPECT_FALSE(found.per_pair);
  EXPECT_GT(found.averaged, 1);
  EXPECT_LT(found.learned.held_out_loss, found.independent.held_out_loss - 0.02);
  EXPECT_LT(found.learned.held_out_loss, found.pooled.held_out_loss + 0.01);
}

// The same answer whatever the columns are measured in.
TEST(InteractTable, UnitsOfColumnsDoNotMatter) {
  const InteractTableData data = signed_tasks({1, -1}, 15, 3);
  const InteractTableResult found = interact_table(data, {});
  InteractTableData scaled = data;
  scaled.train.features.dense =
      TableScale({data.train.features}, true).scaled(data.train.features).narrow(1, 0, 6);
  const InteractTableResult same = interact_table(scaled, {});
  EXPECT_NEAR(found.learned.held_out_loss, same.learned.held_out_loss, 1e-9);
  for (int64_t t = 0; t < 2; ++t) {
    const Tensor scores = table_scores(data.train.features, found.learned.weights[t]);
    EXPECT_LT(
        largest((scores - table_scores(scaled.train.features, same.learned.weights[t])).softmax(1) - 0.5),
        1e-6);
  }
  EXPECT_TRUE(found.learned.weights.equal(interact_table(data, {}).learned.weights));  // the same bits
}

// The loss of few rows depends on which of them share a fold: it is the mean over three deals.
TEST(InteractTable, FewRowsAreDealtIntoFoldsThreeTimes) {
  const InteractTableData data = signed_tasks({1, 0.5, 1}, 20, 12);
  const TaskTable found = interact_table(data, {}).pooled;
  TaskRows rows{.scaled = TableScale({data.train.features}, true).scaled(data.train.features),
                .labels = data.train.labels,
                .task = data.task,
                .fold = {},
                .tasks = 3,
                .classes = 2};
  rows.folds = 5;
  Random first(named_seed(0, "folds")), more(named_seed(0, "more folds"));
  double loss = 0, least = 1, largest_loss = 0;
  for (int deal = 0; deal < 3; ++deal) {
    rows.fold = stratified_folds(rows.task * 2 + rows.labels, 6, 5, deal == 0 ? first : more);
    const double one = HeldOutTasks(rows)({found.coupling, found.regularizer});
    loss += one / 3;
    least = std::min(least, one);
    largest_loss = std::max(largest_loss, one);
  }
  EXPECT_GT(largest_loss, least + 5e-3) << "the test says nothing";
  // As one model for all has it, whatever share the intercepts feel.
  EXPECT_NEAR(found.held_out_loss, loss, 0.2 * (largest_loss - least));
}

// All models say the same, so that none has much of the likelihood: rho is what its prior says.
TEST(InteractTable, ConstantColumnsLeaveTheSharesOfTheClasses) {
  InteractTableData data = signed_tasks({1, 1, 1}, 20, 5);
  data.train.features.dense = at::full({60, 2}, 3.0, doubles());
  data.train.labels = at::arange(60).remainder(4).eq(0).to(at::kLong);
  const InteractTableResult found = interact_table(data, {});
  EXPECT_FALSE(found.per_pair);
  EXPECT_GE(found.averaged, 1);
  EXPECT_GT(found.learned.regularizer, 0.02);
  for (int64_t t = 0; t < 3; ++t) {
    const Tensor p = table_scores(data.train.features, found.learned.weights[t]).softmax(1);
    EXPECT_LT(largest(p.select(1, 1) - 0.25), 0.02) << t;
  }
}

// Tasks that share half of what they want: one model for all is clearly worse than tasks alone, and what lies
// between is better than both.
TEST(InteractTable, PartialPoolingIsTriedWhereTasksDiffer) {
  InteractTableData data = signed_tasks({1, 1, 1, 1, 1, 1, 1, 1}, 25, 9);
  const Tensor x = TableScale({data.train.features}, true).scaled(data.train.features);
  Random random(10);
  const Tensor slopes = random.normal({1, 6}, doubles()) + random.normal({8, 6}, doubles());
  const Tensor score = 1.5 * (x.narrow(1, 0, 6) * slopes.index_select(0, data.task)).sum(1);
  data.train.labels = random.uniform({200}, doubles()).lt(score.sigmoid()).to(at::kLong);
  const InteractTableResult found = interact_table(data, {});
  ASSERT_GT(found.pooled.held_out_loss, found.independent.held_out_loss + 0.02);
  TaskRows rows{
      .scaled = x, .labels = data.train.labels, .task = data.task, .fold = {}, .tasks = 8, .classes = 2};
  rows.folds = 5;
  Random folds(named_seed(0, "folds"));
  rows.fold = stratified_folds(rows.task * 2 + rows.labels, 16, 5, folds);
  HeldOutTasks loss(rows);
  double least = found.independent.held_out_loss;
  for (double rho = -3; rho <= 3; rho += 2) {
    for (double pull = -3; pull <= 3; pull += 1) {
      least = std::min(least, loss({alike_pairs(8, std::exp(pull) / 16), std::exp(rho)}));
    }
  }
  ASSERT_LT(least, found.independent.held_out_loss - 0.01) << "the test says nothing";
  EXPECT_LT(found.learned.held_out_loss, least + 0.005);
}

// Fits see the training rows alone, so that the losses of validation rows can be had from what is returned.
TEST(InteractTable, ValidationRowsJudgeAndAreNotFittedTo) {
  const std::vector<double> signs = {1, 1, -1, -1};
  InteractTableData data = signed_tasks(signs, 25, 7);
  const InteractTableData more = signed_tasks(signs, 20, 8);
  data.valid = more.train;
  data.valid_task = more.task;
  const InteractTableResult found = interact_table(data, {.folds = 1000});  // which is not read
  for (const TaskTable* table : {&found.learned, &found.independent, &found.pooled}) {
    double loss = 0, right = 0;
    for (int64_t t = 0; t < 4; ++t) {
      const Tensor mine = more.task.eq(t).nonzero().squeeze(1);
      const TableScores scores = score_table(dense(more.train.features.dense.index_select(0, mine)),
                                             more.train.labels.index_select(0, mine), table->weights[t]);
      loss += scores.loss / 4;
      right += scores.accuracy / 4;
    }
    EXPECT_NEAR(table->held_out_loss, loss, 1e-6);
    EXPECT_NEAR(table->held_out_accuracy, right, 1e-9);
  }
  EXPECT_LT(found.learned.held_out_loss, found.pooled.held_out_loss - 0.1);
}

TEST(InteractTable, WhatCannotBeIsRefused) {
  InteractTableData data = signed_tasks({1, 1}, 5, 4);
  EXPECT_THROW(interact_table(data, {.folds = 11}), std::invalid_argument);
  EXPECT_FALSE(interact_table(data, {}).searched_pairs);  // two tasks are one pair
  data.task = data.task + 1;
  EXPECT_THROW(interact_table(data, {}), std::invalid_argument);
  EXPECT_TRUE(is_small_enough_for_newton(400, 8, 10, 2, 5));
  EXPECT_FALSE(is_small_enough_for_newton(400, 8, 5000, 10, 5));      // Hessians
  EXPECT_FALSE(is_small_enough_for_newton(30'000, 10'000, 2, 2, 5));  // strengths of pairs
  EXPECT_FALSE(is_small_enough_for_newton(1'000'000, 8, 2, 2, 5));    // losses of rows under all models
  EXPECT_FALSE(is_small_enough_for_newton(100'000, 2, 600, 2, 1));    // the table itself
  EXPECT_FALSE(is_small_enough_for_newton(100'000, 2, 1, 100, 5));    // scores of folds
}

}  // namespace
}  // namespace bilevel::test
