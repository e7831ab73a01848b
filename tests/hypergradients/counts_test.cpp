// What every estimator costs, exactly as in docs/mathematics.md: counted by a problem that counts its own
// calls, which Oracle must agree with. And the schedules of checkpoints: optimal by dynamic programming,
// within their budget.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "bilevel/hypergradients/checkpoints.h"
#include "bilevel/hypergradients/exact.h"
#include "bilevel/problems/learned_rate.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

struct Cost {
  int64_t hessian = 0, cross = 0, inner_gradient = 0, outer_gradient = 1;
  bool operator==(const Cost&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Cost& c) {
  return out << c.hessian << " hessian, " << c.cross << " cross, " << c.inner_gradient << " inner, "
             << c.outer_gradient << " outer";
}

struct Measured {
  Cost own, oracle;
  int64_t samples = 0, oracle_samples = 0;
  Hypergradient hypergradient;
};

// The estimator's own calls, the inner loop's left out.
Measured measure(const std::string& name, const EstimatorSettings& settings, const Problem& problem,
                 const InnerOptions& options, const Tensor& warm_start = {}) {
  CountingProblem counting(problem);
  Oracle oracle(counting);
  const Tensor x = problem.initial_outer(0);
  const auto estimator = make_estimator(name, settings);
  const auto optimizer = make_inner_optimizer(options);
  const Tensor start = problem.initial_inner(0);
  InnerLoop run;
  run.options = options;
  run.keep = estimator->keeps(options.steps, optimizer->start(start).bytes());
  Trajectory inner = run_inner(oracle, x, start, run);
  counting.forget();
  Measured result;
  result.hypergradient = estimator->estimate(oracle, {.x = x, .inner = inner, .warm_start = warm_start});
  const auto& calls = counting.calls();
  const auto count = [](const std::vector<Batch>& list) { return static_cast<int64_t>(list.size()); };
  result.own = {count(calls.hessian), count(calls.cross), count(calls.inner_gradient),
                count(calls.outer_gradient)};
  const OracleCounts& c = result.hypergradient.counts;
  result.oracle = {c.hessian, c.cross, c.inner_gradient, c.outer_gradient};
  result.samples = calls.samples;
  result.oracle_samples = c.samples;
  return result;
}

// The table of docs/mathematics.md, "Estimators". T inner steps, K terms and steps kept, n and m the sizes of
// w and x.
Cost expected_cost(const std::string& name, int64_t T, int64_t K, int64_t n, int64_t m, int64_t slots) {
  const auto without_first = [](int64_t count) { return std::max<int64_t>(count - 1, 0); };
  const int64_t kept = std::min(K, T);
  const std::map<std::string, Cost> table = {
      {"exact", {n, 1}},
      {"one-step", {0, std::min<int64_t>(T, 1)}},
      {"t1t2", {0, 1}},
      {"reverse", {without_first(T), T}},
      {"reverse-sqrt", {without_first(T), T, T - static_cast<int64_t>(sqrt_checkpoints(T).size())}},
      {"reverse-binomial", {without_first(T), T, binomial_recomputed(T, slots)}},
      {"truncated", {without_first(kept), kept}},
      {"forward", {without_first(T) * m, T * m, T}},
      {"neumann", {K, 1}},
      {"cg", {K, 1}},
      {"minres", {K, 1}},
      {"fixed-point", {without_first(K), 1}},
      {"nystrom", {std::max<int64_t>(K, 1), 1}},
      {"general-backward", {without_first(T), T}},
      {"general-forward", {without_first(T), std::min<int64_t>(T, 1), 0, T + 1}},
  };
  return table.at(name);
}

class EveryCount : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCount, is_that_of_the_table_and_of_the_double) {
  const Ridge ridge({.features = 8});
  for (const int64_t steps : {0, 1, 2, 9, 30}) {
    for (const int64_t terms : {0, 1, 5}) {
      const int64_t slots = 3;
      EstimatorSettings settings;
      settings.terms = settings.truncate = terms;
      settings.byte_budget = slots * 8 * 8;
      InnerOptions options;
      options.steps = steps;
      options.rate = 0.3;
      const Measured found = measure(GetParam(), settings, ridge, options);
      EXPECT_EQ(found.own, expected_cost(GetParam(), steps, terms, 8, 8, slots))
          << "T " << steps << " K " << terms;
      EXPECT_EQ(found.oracle, found.own);
      EXPECT_EQ(found.oracle_samples, found.samples);
      EXPECT_EQ(found.samples, 50 * (found.own.hessian + found.own.cross + found.own.inner_gradient +
                                     found.own.outer_gradient));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryCount, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const EstimatorRow& row : estimator_rows()) names.push_back(row.name);
                           return names;
                         }()),
                         [](const auto& row) { return test_name(row.param); });

// A learned start costs the first step's Hessian product too; a learned rate needs the gradient of every
// step.
TEST(Counts, a_learned_start_and_rate_cost_T_hessians_and_T_gradients) {
  const int64_t T = 7, m = 39;
  InnerOptions options;
  options.steps = T;
  EstimatorSettings settings;
  settings.truncate = 3;
  settings.byte_budget = 2 * 35 * 8;
  const LearnedRate problem;
  EXPECT_EQ(measure("reverse", settings, problem, options).own, (Cost{T, T, T}));
  EXPECT_EQ(measure("reverse-sqrt", settings, problem, options).own, (Cost{T, T, T + T - 3}));
  EXPECT_EQ(measure("reverse-binomial", settings, problem, options).own,
            (Cost{T, T, T + binomial_recomputed(T, 2)}));
  EXPECT_EQ(measure("truncated", settings, problem, options).own, (Cost{2, 3, 3}));
  EXPECT_EQ(measure("forward", settings, problem, options).own, (Cost{T * m, T * m, T}));
  // Where g has no x in it there is no cross product to take.
  const LearnedRate start_and_rate_only({.learn_regularization = false});
  EXPECT_EQ(measure("reverse", settings, start_and_rate_only, options).own, (Cost{T, 0, T}));
  EXPECT_EQ(measure("forward", settings, start_and_rate_only, options).own, (Cost{T * (m - 2), 0, T}));
  EXPECT_EQ(measure("neumann", settings, start_and_rate_only, options).own, (Cost{10, 0}));
}

TEST(Counts, adam_needs_the_gradient_of_every_step_again) {
  InnerOptions options;
  options.steps = 6;
  options.optimizer = "adam";
  const Ridge ridge({.features = 8});
  EXPECT_EQ(measure("reverse", {}, ridge, options).own, (Cost{5, 6, 6}));
  options.optimizer = "heavy-ball";
  EXPECT_EQ(measure("reverse", {}, ridge, options).own, (Cost{5, 6, 0}));
}

TEST(Counts, a_warm_start_costs_one_product_more) {
  const Ridge ridge({.features = 8});
  EstimatorSettings settings;
  settings.terms = 4;
  const Tensor warm = random_vector(8, 1);
  EXPECT_EQ(measure("cg", settings, ridge, {}, warm).own, (Cost{5, 1}));
  EXPECT_EQ(measure("minres", settings, ridge, {}, warm).own, (Cost{5, 1}));
  EXPECT_EQ(measure("fixed-point", settings, ridge, {}, warm).own, (Cost{4, 1}));
}

TEST(Counts, exact_by_conjugate_gradients_costs_what_they_take) {
  const Ridge ridge({.features = 8});
  CountingProblem counting(ridge);
  Oracle oracle(counting);
  Trajectory here = standing_at(random_vector(8, 1));
  const Tensor x = ridge.initial_outer(0);
  const Exact exact(ExactOptions{.curvature = {}, .direct_limit = 7});
  const Hypergradient found = exact.estimate(oracle, {.x = x, .inner = here});
  EXPECT_EQ(static_cast<int64_t>(counting.calls().hessian.size()), found.iterations);
  EXPECT_LE(found.iterations, 10);
  EXPECT_EQ(counting.calls().cross.size(), 1U);
  EXPECT_EQ(found.status, Status::converged);
}

TEST(Counts, differences_cost_two_gradients_each) {
  const Ridge ridge({.features = 8});
  EstimatorSettings settings;
  settings.terms = 4;
  settings.curvature.difference_cross = true;
  EXPECT_EQ(measure("neumann", settings, ridge, {}).own, (Cost{4, 0, 2}));
  settings.truncate = 3;
  EXPECT_EQ(measure("one-step", settings, ridge, {}).own, (Cost{0, 0, 2}));
  EXPECT_EQ(measure("truncated", settings, ridge, {}).own, (Cost{2, 0, 6}));
  settings.curvature.difference_hessian = true;
  EXPECT_EQ(measure("neumann", settings, ridge, {}).own, (Cost{0, 0, 10}));
  EXPECT_EQ(measure("neumann", settings, ridge, {}).oracle, (Cost{0, 0, 10}));
}

// The fewest recomputed steps that any schedule can have, by trying every split. `free` = the inner loop
// passes by anyway and stores what is asked for.
class FewestSteps {
 public:
  int64_t operator()(int64_t steps, int64_t slots, bool free) {
    if (steps <= 1) return 0;
    if (slots == 1) return steps * (steps - 1) / 2;
    int64_t& known = table_[{steps, slots, free}];
    if (known > 0) return known - 1;
    int64_t best = steps * steps;
    for (int64_t split = 1; split < steps; ++split) {
      best = std::min(
          best, (free ? 0 : split) + (*this)(steps - split, slots - 1, free) + (*this)(split, slots, false));
    }
    table_[{steps, slots, free}] = best + 1;
    return best;
  }

 private:
  std::map<std::tuple<int64_t, int64_t, bool>, int64_t> table_;
};

TEST(Checkpoints, the_binomial_schedule_is_optimal) {
  FewestSteps fewest;
  for (int64_t steps = 0; steps <= 60; ++steps) {
    for (int64_t slots = 1; slots <= 9; ++slots) {
      EXPECT_EQ(binomial_recomputed(steps, slots), fewest(steps, slots, true)) << steps << " " << slots;
      const auto positions = binomial_checkpoints(steps, slots);
      EXPECT_LE(static_cast<int64_t>(positions.size()), slots);
      EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
      if (steps > 0) {
        EXPECT_TRUE(positions.front() == 0 && positions.back() < steps);
      }
    }
  }
  EXPECT_EQ(binomial_recomputed(1000, 1000), 0);
  // 64 MB hold eight iterates of a million doubles: four to five more forward passes over a thousand steps.
  EXPECT_GT(binomial_recomputed(1000, 8), 3 * 1000);
  EXPECT_LT(binomial_recomputed(1000, 8), 5 * 1000);
}

TEST(Checkpoints, every_sqrt_T_th_state) {
  EXPECT_EQ(sqrt_checkpoints(10), (std::vector<int64_t>{0, 4, 8}));
  EXPECT_EQ(sqrt_checkpoints(9), (std::vector<int64_t>{0, 3, 6}));
  EXPECT_EQ(sqrt_checkpoints(1), (std::vector<int64_t>{0}));
  EXPECT_TRUE(sqrt_checkpoints(0).empty());
}

TEST(BytesKept, are_those_of_the_table) {
  const Ridge problem;  // 20 weights, 20 outer variables
  const int64_t n = 20 * 8, T = 100;
  InnerOptions options;
  options.steps = T;
  EstimatorSettings settings;
  settings.truncate = 7;
  const auto bytes = [&](const char* name) {
    return measure(name, settings, problem, options).hypergradient.bytes_kept;
  };
  EXPECT_EQ(bytes("reverse"), T * n);
  EXPECT_EQ(bytes("truncated"), 7 * n);
  EXPECT_EQ(bytes("one-step"), n);
  EXPECT_EQ(bytes("reverse-sqrt"), (10 + 9) * n);  // ten checkpoints and the nine states between two of them
  EXPECT_EQ(bytes("forward"), (1 + 20) * n);
  EXPECT_EQ(bytes("general-backward"), T * n);
  for (const int64_t slots : {1, 2, 5, 12}) {
    settings.byte_budget = slots * n + 17;
    EXPECT_LE(bytes("reverse-binomial"), settings.byte_budget);
    EXPECT_EQ(bytes("reverse-binomial"), slots * n);
  }
  for (const char* name : {"neumann", "cg", "minres", "fixed-point"}) {
    settings.terms = 4;
    const int64_t few = bytes(name);
    settings.terms = 12;
    EXPECT_EQ(bytes(name), few) << name;  // whatever the number of terms
    EXPECT_LE(few, 6 * n) << name;
    EXPECT_GE(few, 2 * n) << name;
  }
  // A state holds the optimiser's buffers as well.
  options.optimizer = "adam";
  EXPECT_EQ(bytes("truncated"), 7 * 3 * n);
}

TEST(BytesKept, a_budget_too_small_for_one_state_is_an_error) {
  const Mlp problem;
  EstimatorSettings settings;
  settings.byte_budget = 136 * 8 - 1;
  const auto names_the_budget = ::testing::ThrowsMessage<std::invalid_argument>(
      ::testing::AllOf(::testing::HasSubstr("byte_budget = 1087"), ::testing::HasSubstr("1088 bytes")));
  EXPECT_THAT([&] { measure("reverse-binomial", settings, problem, {}); }, names_the_budget);
  Oracle oracle(problem);
  const Trajectory all = run_all_kept(oracle, problem.initial_outer(0), problem.initial_inner(0), {});
  EXPECT_THAT([&] { estimate_along("reverse-binomial", settings, oracle, problem.initial_outer(0), all); },
              names_the_budget);
  for (const int64_t bad : {0, -5}) {
    settings.byte_budget = bad;
    EXPECT_THROW(make_estimator("reverse-binomial", settings), std::invalid_argument);
  }
}

}  // namespace
}  // namespace bilevel::test
