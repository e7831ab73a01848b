// The comparison of algorithms: one yardstick for all rows, rates that hold for the whole budget, schedules
// that end with it.
#include "bilevel/check/compare.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bilevel/check/references.h"
#include "bilevel/core/problem.h"
#include "bilevel/problems/cleaning_data.h"
#include "bilevel/problems/ridge.h"
#include "bilevel/problems/weighted_softmax.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Hyper-cleaning with 80 examples of 600 features: 3,000 weights, which no one assembles a Hessian of.
WeightedSoftmax wide_cleaning() {
  SyntheticCleaningOptions options;
  options.data.features = 600;
  options.samples = 80;
  return {draw_cleaning_data(options, 0), 0.01, doubles()};
}

CompareOptions on(const WeightedSoftmax& problem, const std::vector<std::string>& algorithms) {
  CompareOptions options;
  options.algorithms = algorithms;
  options.seeds = {0};
  options.settings.inner.rate = 1 / problem.smoothness_bound();
  options.settings.inner.steps = 10;
  options.settings.outer.rate = 1;
  options.search.on = false;
  options.solve.iterations = 20;
  options.solve.records = 4;
  options.stochastic_batches = {};
  return options;
}

TEST(Compare, ManyWeightsHaveTheSameYardstickAsFew) {
  const WeightedSoftmax problem = wide_cleaning();
  const Comparison comparison = compare_algorithms(problem, on(problem, {"aid-cg", "f2sa"}));
  EXPECT_EQ(comparison.yardstick, Yardstick::value_function);
  EXPECT_EQ(comparison.why, "");
  for (const ComparedAlgorithm& algorithm : comparison.algorithms) {
    const ComparedRun& run = algorithm.runs.front();
    ASSERT_EQ(run.records.size(), 5U);
    for (const ComparedRecord& record : run.records) {
      ASSERT_TRUE(record.gradient_norm.has_value());
      EXPECT_GT(*record.gradient_norm, 0);
    }
    // Against Newton's method to rounding, from another start.
    Oracle oracle(problem);
    const Tensor x = run.summary.state.x;
    const ImplicitReference reference = implicit_reference(oracle, x, problem.initial_inner(0));
    ASSERT_TRUE(reference.value.defined()) << reference.why;
    const double value = number(oracle.outer_loss(reference.inner.w, x));
    EXPECT_NEAR(run.records.back().value, value, 1e-7 * value) << algorithm.name;
    EXPECT_NEAR(*run.records.back().gradient_norm, length(reference.value), 1e-6 * length(reference.value))
        << algorithm.name;
  }
}

TEST(Compare, AnInnerProblemThatIsTooDearMakesTheOwnLossTheYardstickOfEveryRow) {
  const WeightedSoftmax problem = wide_cleaning();
  CompareOptions options = on(problem, {"aid-cg", "soba"});
  options.value.products = 2;
  const Comparison comparison = compare_algorithms(problem, options);
  EXPECT_EQ(comparison.yardstick, Yardstick::own_loss);
  EXPECT_THAT(comparison.why, AllOf(HasSubstr("at the first x"), HasSubstr("max_iterations")));
  for (const ComparedAlgorithm& algorithm : comparison.algorithms) {
    for (const ComparedRecord& record : algorithm.runs.front().records) {
      EXPECT_EQ(record.value, record.record.outer_loss);
      EXPECT_FALSE(record.gradient_norm.has_value());
    }
  }
}

TEST(Compare, TheOwnLossIsSaidToBeOneWhereItWasAskedFor) {
  const WeightedSoftmax problem = wide_cleaning();
  CompareOptions options = on(problem, {"aid-cg"});
  options.measure_value = false;
  const Comparison comparison = compare_algorithms(problem, options);
  EXPECT_EQ(name_of(comparison.yardstick), "own f(x, w)");
  EXPECT_EQ(comparison.why, "");
}

FunctionProblem scalar_problem(const FunctionProblem::Loss& inner, const FunctionProblem::Loss& outer,
                               double w, double x) {
  return {inner, outer, vec({w}), vec({x})};
}

// From x = 1 on the inner problem has no solution: what was measured until then is not mixed with what is
// left.
TEST(Compare, APointThatCannotBeMeasuredChangesTheYardstickOfAllRows) {
  const FunctionProblem problem = scalar_problem(
      [](const Tensor& w, const Tensor& x, const Batch&) { return (at::relu(1 - x) * w * w - w).sum(); },
      [](const Tensor& w, const Tensor&, const Batch&) { return (w - 100).pow(2).sum(); }, 1, 0);
  CompareOptions options;
  options.algorithms = {"darts-first-order", "itd"};  // the first one leaves x where it is
  options.seeds = {0};
  options.settings.inner.rate = 0.1;
  options.settings.inner.steps = 2;
  options.settings.outer.rate = 0.005;
  options.search.on = false;
  options.solve.iterations = 20;
  options.solve.records = 20;
  options.stochastic_batches = {};
  const Comparison comparison = compare_algorithms(problem, options);
  EXPECT_GT(number(comparison.algorithms[1].runs.front().summary.state.x), 1);
  EXPECT_EQ(comparison.yardstick, Yardstick::own_loss);
  EXPECT_THAT(comparison.why, AllOf(HasSubstr("of itd with seed 0"), HasSubstr("was not solved")));
  for (const ComparedAlgorithm& algorithm : comparison.algorithms) {
    for (const ComparedRecord& record : algorithm.runs.front().records) {
      EXPECT_EQ(record.value, record.record.outer_loss);
      EXPECT_FALSE(record.gradient_norm.has_value());
    }
  }
}

// w follows x slowly: where x has jumped below zero f(x, w) is still finite, and f(x, w*(x)) is not a number.
TEST(Compare, AValueThatIsNotANumberNeverWinsTheSearch) {
  const FunctionProblem problem = scalar_problem(
      [](const Tensor& w, const Tensor& x, const Batch&) { return (0.5 * (w - x).pow(2)).sum(); },
      [](const Tensor& w, const Tensor&, const Batch&) { return w.sqrt().sum(); }, 1, 1);
  CompareOptions options;
  options.algorithms = {"itd"};
  options.seeds = {0};
  options.settings.inner.rate = 0.01;
  options.settings.inner.steps = 1;
  options.search.outer_rates = {0.01, 300};
  options.search.inner_factors = {1};
  options.solve.iterations = 2;
  const Comparison comparison = compare_algorithms(problem, options);
  const ComparedAlgorithm& itd = comparison.algorithms.front();
  EXPECT_EQ(itd.outer_rate, 0.01);
  EXPECT_EQ(itd.failed_candidates, 1);
  EXPECT_EQ(comparison.yardstick, Yardstick::value_function);
  EXPECT_LT(itd.runs.front().records.back().value, 1);
}

// w* = exp(-x), and f = w wants it to be small: x grows, the curvature exp(x) with it, and the inner rate 0.5
// is stable while exp(x) < 4. The larger outer rate is better in the short runs of the search and gets there
// in a whole one.
TEST(Compare, ARateThatDivergesWithinTheBudgetIsNotTaken) {
  const FunctionProblem problem = scalar_problem(
      [](const Tensor& w, const Tensor& x, const Batch&) { return (0.5 * x.exp() * w * w - w).sum(); },
      [](const Tensor& w, const Tensor&, const Batch&) { return w.sum(); }, 1, 0);
  CompareOptions options;
  options.algorithms = {"aid-cg"};
  options.seeds = {0, 1};
  options.settings.inner.rate = 0.5;
  options.settings.inner.steps = 10;
  options.search.outer_rates = {0.2, 0.01};
  options.search.inner_factors = {1};
  options.solve.iterations = 1'000'000;
  options.solve.oracle_calls = 740;  // an iteration takes 13 or 14; the search's runs have a quarter
  const Comparison comparison = compare_algorithms(problem, options);
  const ComparedAlgorithm& aid = comparison.algorithms.front();
  EXPECT_EQ(aid.failed_candidates, 0);  // the search sees nothing wrong
  EXPECT_EQ(aid.dropped_candidates, 1);
  EXPECT_EQ(aid.outer_rate, 0.01);
  for (const ComparedRun& run : aid.runs) {
    EXPECT_EQ(run.summary.reason, StopReason::oracle_calls) << run.summary.message;
    EXPECT_LT(run.records.back().value, run.records.front().value);
  }
}

TEST(Compare, AScheduleWithAnEndEndsWithTheBudget) {
  const Ridge problem(RidgeOptions{.initial_log = -1, .noise = 2, .seed = 25});
  CompareOptions options;
  options.algorithms = {"aid-cg", "soba"};
  options.seeds = {0};
  options.settings.inner.rate = 0.1;
  options.settings.inner.steps = 10;
  options.settings.outer.rate = 0.01;
  options.settings.outer.schedule = {.kind = ScheduleKind::cosine, .total_steps = 20};
  options.search.on = false;
  options.solve.iterations = 100'000'000;
  options.solve.oracle_calls = 20'000;
  options.solve.records = 10;
  options.stochastic_batches = {};
  for (const ComparedAlgorithm& algorithm : compare_algorithms(problem, options).algorithms) {
    const ComparedRun& run = algorithm.runs.front();
    const auto iterations = static_cast<double>(run.summary.state.iteration);
    EXPECT_NEAR(static_cast<double>(algorithm.schedule_iterations), iterations, 0.02 * iterations);
    // Half of the way x still moves; after 20 steps it would not have.
    ASSERT_GE(run.records.size(), 10U);
    const double all = run.records.front().value - run.records.back().value;
    EXPECT_GT(run.records[5].value - run.records[6].value, 1e-3 * all) << algorithm.name;
  }
}

}  // namespace
}  // namespace bilevel::test
