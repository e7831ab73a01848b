// When a run goes wrong: every kind of failure is found in the step where it happens, its message has the
// cause and the option to change, the state is the last good one, and repaired runs reach the optimum.
#include "bilevel/algorithms/failure.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <utility>

#include "bilevel/algorithms/solve.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/problems/registry.h"
#include "tests/algorithms/known_optima.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

SolveOptions options_for(const AlgorithmSettings& settings, OnFailure on_failure = OnFailure::stop) {
  SolveOptions options{.iterations = 300, .records = 10};
  options.settings = settings;
  options.on_failure = on_failure;
  return options;
}

double largest_safe_rate(const Known& known) {
  Oracle oracle(*known.problem);
  const auto linear = oracle.linearize(known.w, known.x, {});
  return extreme_eigenvalues([&](const Tensor& v) { return linear->hessian(v); }, known.w.numel(),
                             known.w.options())
      .largest_safe_rate();
}

TEST(Failure, an_inner_rate_above_the_limit_is_named_with_the_largest_safe_one) {
  const Known known = known_quadratic();
  const double safe = largest_safe_rate(known);
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate = 100;
  settings.inner.steps = 500;
  const SolveSummary s = solve_from(known, *make_algorithm("aid-cg", settings), options_for(settings));
  EXPECT_EQ(s.reason, StopReason::not_finite);
  EXPECT_THAT(s.message, AllOf(HasSubstr("inner loop left the finite numbers"), HasSubstr("inner rate 100"),
                               HasSubstr(fmt::format("2/L = {:.4g}", safe)), HasSubstr("--inner-rate")));
  ASSERT_EQ(s.failures.size(), 1U);
  EXPECT_EQ(s.failures[0].iteration, 1);
  EXPECT_EQ(s.failures[0].repair, "none");
  EXPECT_EQ(s.state.iteration, 0);
  EXPECT_TRUE(s.state.inner.w.equal(known.w));
  EXPECT_TRUE(s.state.x.equal(known.x));
}

TEST(Failure, a_divergence_is_found_while_it_is_still_finite) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate = 1.5 * largest_safe_rate(known);  // |w| doubles in every iteration of a single loop
  SolveSummary s = solve_from(known, *make_algorithm("soba", settings), options_for(settings));
  EXPECT_EQ(s.reason, StopReason::failed);
  EXPECT_THAT(s.message, AllOf(HasSubstr("it diverges"), HasSubstr("--inner-rate")));
  EXPECT_LT(length(s.state.inner.w), 100 * (1 + length(known.w)));
  EXPECT_LT(s.failures[0].iteration, 60);
  // Without the settings nothing is known of the rate, and it is found when the numbers end.
  SolveOptions bare{.iterations = 5000, .records = 1};
  s = solve_from(known, *make_algorithm("soba", settings), bare);
  EXPECT_EQ(s.reason, StopReason::not_finite);
  EXPECT_THAT(s.message, HasSubstr("2/L"));
}

TEST(Failure, backtracking_lowers_the_inner_rate_and_reaches_the_optimum) {
  struct Case {
    const char* name;
    int64_t inner_steps, iterations;
  };
  for (const auto& [name, inner_steps, iterations] :
       {Case{"aid-cg", 50, 700}, Case{"soba", 1, 3000}, Case{"reverse", 200, 700}}) {
    const Known known = known_quadratic();
    AlgorithmSettings settings = settings_for(known);
    settings.inner.rate = 100;
    settings.inner.steps = inner_steps;
    SolveOptions options = options_for(settings, OnFailure::backtrack);
    options.iterations = iterations;
    const SolveSummary s = solve_from(known, *make_algorithm(name, settings), options);
    EXPECT_EQ(s.reason, StopReason::iterations) << name << s.message;
    ASSERT_FALSE(s.failures.empty()) << name;
    EXPECT_THAT(s.failures[0].repair, ContainsRegex("inner rate 100 to ")) << name;
    EXPECT_LT(s.failures.size(), 4U) << name;
    EXPECT_LT(known.gradient_norm(s.state.x), 1e-3 * known.gradient_norm(known.x)) << name;
    EXPECT_EQ(s.state.iteration, iterations) << name;
  }
}

TEST(Failure, an_exploding_outer_step_is_told_from_an_inner_one_and_repaired) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.outer.rate *= 1e4;
  SolveSummary s = solve_from(known, *make_algorithm("aid-cg", settings), options_for(settings));
  EXPECT_TRUE(ended_badly(s.reason));
  EXPECT_THAT(s.message, AllOf(HasSubstr("--outer-rate"), Not(HasSubstr("take --inner-rate"))));
  EXPECT_LT(length(s.state.x - known.x), 1e6 * (1 + length(known.x)));
  SolveOptions options = options_for(settings, OnFailure::backtrack);
  options.iterations = 2000;
  s = solve_from(known, *make_algorithm("aid-cg", settings), options);
  EXPECT_EQ(s.reason, StopReason::iterations) << s.message;
  EXPECT_LT(known.gradient_norm(s.state.x), 1e-3 * known.gradient_norm(known.x));
  EXPECT_THAT(s.failures.at(0).repair, HasSubstr("outer rate"));
}

TEST(Failure, an_outer_step_to_where_the_inner_rate_is_not_safe_is_the_outer_rates_fault) {
  // g's curvature is exp(x), and f drives x up by 5 a step: the inner rate is safe at 0 and not at 5.
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch&) { return 0.5 * (x.exp() * (w - 1).square()).sum(); },
      [](const Tensor& w, const Tensor& x, const Batch&) { return 1e-3 * w.square().sum() - x.sum(); },
      at::zeros({1}, at::kDouble), at::zeros({1}, at::kDouble));
  AlgorithmSettings settings;
  settings.inner = {.steps = 100, .rate = 0.3};
  settings.outer.rate = 5;
  const SolveSummary s = solve(problem, *make_algorithm("aid-cg", settings), options_for(settings));
  EXPECT_TRUE(ended_badly(s.reason));
  EXPECT_THAT(s.message, AllOf(HasSubstr("outer step took x"), HasSubstr("--outer-rate")));
}

TEST(Failure, a_linear_rate_above_the_limit_is_named_and_repaired) {
  const Known known = known_quadratic();
  const double safe = largest_safe_rate(known);
  AlgorithmSettings settings = settings_for(known);
  settings.linear_rate = 3 * safe;
  const auto algorithm = make_algorithm("soba", settings);
  SolveSummary s = solve_from(known, *algorithm, options_for(settings));
  EXPECT_TRUE(ended_badly(s.reason));
  EXPECT_THAT(s.message, HasSubstr("--linear-rate"));
  SolveOptions options = options_for(settings, OnFailure::backtrack);
  options.iterations = 5000;
  s = solve_from(known, *algorithm, options);
  EXPECT_EQ(s.reason, StopReason::iterations) << s.message;
  EXPECT_LT(known.gradient_norm(s.state.x), 1e-3 * known.gradient_norm(known.x));
}

// w and the loss stay what they were: adam moves x by its rate, however long the direction is.
TEST(Failure, a_linear_system_that_diverges_is_found_by_the_direction_alone) {
  const NamedProblem softmax = make_problem("softmax-regression", {});
  AlgorithmSettings settings;
  settings.inner = {.steps = 1, .rate = 8};
  settings.outer = {.optimizer = "adam", .rate = 0.05};
  settings.linear_rate = 1000;
  const auto algorithm = make_algorithm("soba", settings);
  SolveSummary s = solve(*softmax.problem, *algorithm, options_for(settings));
  EXPECT_EQ(s.reason, StopReason::failed);
  EXPECT_THAT(s.message, AllOf(HasSubstr("it diverges"), HasSubstr("--linear-rate")));
  EXPECT_LT(s.failures.at(0).iteration, 10);
  EXPECT_LT(s.records.back().outer_loss, 2 * s.records.front().outer_loss);
  s = solve(*softmax.problem, *algorithm, options_for(settings, OnFailure::backtrack));
  EXPECT_EQ(s.reason, StopReason::iterations) << s.message;
  EXPECT_EQ(s.failures.size(), 1U);
  settings.linear_rate = 0;
  const SolveSummary healthy =
      solve(*softmax.problem, *make_algorithm("soba", settings), options_for(settings));
  EXPECT_TRUE(healthy.failures.empty());
  // Adam remembers the long directions for a while, so that it is slower; without a repair x stays, at 0.57.
  EXPECT_LT(healthy.records.back().outer_loss, 0.1);
  EXPECT_LT(s.records.back().outer_loss, 0.3);
}

TEST(Failure, a_false_alarm_is_not_given_again_at_once_and_makes_no_state_healthy) {
  FailureWatch watch;
  watch.begin(0, 2);
  EXPECT_TRUE(watch.healthy(10, 20));
  EXPECT_FALSE(watch.alarmed(1000, 2000));
  EXPECT_TRUE(watch.alarmed(1001, 1));
  EXPECT_TRUE(watch.alarmed(1, 2001));
  watch.false_alarm(1, 3000);
  EXPECT_FALSE(watch.alarmed(1000, 30000));
  EXPECT_TRUE(watch.alarmed(1, 30001));
  EXPECT_TRUE(watch.alarmed(1001, 1));
  for (int i = 0; i < 10; ++i) watch.false_alarm(1e9, 1e9);
  EXPECT_FALSE(watch.healthy(11, 1));
  EXPECT_FALSE(watch.healthy(1, 21));
}

TEST(Failure, a_run_that_failed_and_goes_on_tells_of_it_once) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate = 1.5 * largest_safe_rate(known);
  const auto algorithm = make_algorithm("soba", settings);
  const SolveOptions options = options_for(settings);
  SolveState saved;
  const SolveHooks hooks{.save = [&](const SolveState& state) { saved = state; }};
  const SolveSummary first = solve(*known.problem, *algorithm, options, hooks, known.x, known.w);
  ASSERT_EQ(first.failures.size(), 1U);
  for (int i = 0; i < 2; ++i) {
    const SolveSummary again = continue_solve(*known.problem, *algorithm, options, saved, hooks);
    EXPECT_EQ(again.reason, first.reason);
    ASSERT_EQ(again.failures.size(), 1U);
    EXPECT_EQ(again.failures[0].cause, first.failures[0].cause);
  }
}

// g = (w_1^2 - w_2^2) / 2 + w_2^4 / 4 - x w_2: near w = 0 the curvature is -1 along w_2.
FunctionProblem saddle() {
  return {[](const Tensor& w, const Tensor& x, const Batch&) {
            return 0.5 * (w[0] * w[0] - w[1] * w[1]) + 0.25 * w[1].pow(4) - x[0] * w[1];
          },
          [](const Tensor& w, const Tensor& x, const Batch&) {
            return 0.5 * (w[1] - 3) * (w[1] - 3) + 0.5 * x.dot(x);
          },
          vec({0.1, 0.0}), vec({0.01})};
}

TEST(Failure, negative_curvature_that_leaves_nothing_of_the_hypergradient_is_no_silent_zero) {
  const FunctionProblem problem = saddle();
  AlgorithmSettings settings;
  settings.inner = {.steps = 1, .rate = 0.01};
  settings.outer.rate = 0.01;
  SolveSummary s = solve(problem, *make_algorithm("aid-cg", settings), options_for(settings));
  EXPECT_EQ(s.reason, StopReason::failed);
  EXPECT_THAT(s.message, AllOf(HasSubstr("negative curvature"), HasSubstr("no derivative comes through w"),
                               HasSubstr("--damping"), HasSubstr("gauss-newton")));
  EXPECT_EQ(s.state.iteration, 0);
  s = solve(problem, *make_algorithm("aid-cg", settings), options_for(settings, OnFailure::damp));
  EXPECT_EQ(s.reason, StopReason::iterations) << s.message;
  ASSERT_FALSE(s.failures.empty());
  EXPECT_THAT(s.failures[0].repair, HasSubstr("damping 0 to 1.5"));
  EXPECT_EQ(s.statuses.at("negative_curvature"), static_cast<int64_t>(s.failures.size()));
}

// The first step of conjugate gradients is along w_1, where the curvature is 1; the second meets -1.
TEST(Failure, negative_curvature_that_leaves_something_is_told_once) {
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch&) {
        return 0.5 * (w[0] * w[0] - w[1] * w[1]) + 0.25 * w[1].pow(4) - x[0] * w[1];
      },
      [](const Tensor& w, const Tensor& x, const Batch&) { return 3 * w[0] + 0.3 * w[1] + 0.5 * x.dot(x); },
      vec({0.1, 0.0}), vec({0.01}));
  AlgorithmSettings settings;
  settings.inner = {.steps = 1, .rate = 0.01};
  settings.outer.rate = 0.01;
  SolveOptions options = options_for(settings);
  options.iterations = 4;
  const SolveSummary s = solve(problem, *make_algorithm("aid-cg", settings), options);
  EXPECT_EQ(s.statuses.at("negative_curvature"), 4);
  ASSERT_EQ(s.failures.size(), 2U);
  EXPECT_EQ(s.failures[0].iteration, 1);
  EXPECT_EQ(s.failures[0].answer, FailureAnswer::went_on);
  EXPECT_EQ(s.failures[1].answer, FailureAnswer::ended);  // for the share of solves that failed
}

TEST(Failure, a_loss_that_is_not_finite_at_the_start_says_so) {
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch&) { return 0.5 * (w - x).dot(w - x); },
      [](const Tensor& w, const Tensor&, const Batch&) { return w.log().sum(); }, vec({-1.0}), vec({-1.0}));
  AlgorithmSettings settings;
  settings.inner = {.steps = 5, .rate = 0.1};
  const SolveSummary s = solve(problem, *make_algorithm("aid-cg", settings), options_for(settings));
  EXPECT_EQ(s.reason, StopReason::not_finite);
  EXPECT_THAT(s.message, HasSubstr("outer loss is nan after 0 iterations"));
  ASSERT_EQ(s.records.size(), 1U);
}

TEST(Failure, repairs_are_bounded_in_number) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.outer.rate *= 1e12;
  SolveOptions options = options_for(settings, OnFailure::backtrack);
  options.most_repairs = 3;
  const SolveSummary s = solve_from(known, *make_algorithm("aid-cg", settings), options);
  EXPECT_TRUE(ended_badly(s.reason));
  EXPECT_EQ(s.failures.size(), 4U);
}

TEST(Failure, a_repaired_run_goes_on_to_the_same_bits_after_a_stop) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate = 2 * largest_safe_rate(known);
  const auto algorithm = make_algorithm("soba", settings);
  SolveOptions options = options_for(settings, OnFailure::backtrack);
  const SolveSummary whole = solve_from(known, *algorithm, options);
  ASSERT_FALSE(whole.failures.empty());
  for (const int64_t stop_after : {2, 6, 40}) {
    SolveState saved;
    int64_t iterations = 0;
    const SolveHooks hooks{.save = [&](const SolveState& state) { saved = state; },
                           .interrupted = [&] { return ++iterations == stop_after; }};
    EXPECT_EQ(solve(*known.problem, *algorithm, options, hooks, known.x, known.w).reason,
              StopReason::interrupted);
    const SolveSummary resumed = continue_solve(*known.problem, *algorithm, options, saved);
    EXPECT_TRUE(resumed.state.x.equal(whole.state.x)) << stop_after;
    EXPECT_TRUE(resumed.state.inner.w.equal(whole.state.inner.w)) << stop_after;
    EXPECT_EQ(resumed.failures.size(), whole.failures.size()) << stop_after;
  }
}

TEST(Failure, diagnosis_costs_the_algorithm_nothing) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  const auto algorithm = make_algorithm("aid-cg", settings);
  const SolveSummary with = solve_from(known, *algorithm, options_for(settings));
  SolveOptions bare = options_for(settings);
  bare.settings.reset();
  const SolveSummary without = solve_from(known, *algorithm, bare);
  EXPECT_TRUE(with.state.x.equal(without.state.x));
  EXPECT_EQ(oracle_calls(with.counts), oracle_calls(without.counts));
  settings.inner.rate = 1.5 * largest_safe_rate(known);
  const SolveSummary failed = solve_from(known, *make_algorithm("soba", settings), options_for(settings));
  EXPECT_EQ(oracle_calls(failed.counts), 4 * failed.failures.at(0).iteration);
}

TEST(ErrorBound, is_of_double_loops_and_stands_in_every_record_but_the_first) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.with_bound = true;
  for (const char* name : {"aid-cg", "itd", "krmd", "aid-increasing", "idarts"}) {
    const SolveSummary s =
        solve_from(known, *make_algorithm(name, settings), {.iterations = 6, .records = 3});
    EXPECT_EQ(s.records.front().bound.kind, BoundKind::none) << name;
    EXPECT_EQ(s.records.back().bound.kind, BoundKind::rigorous) << name;
    EXPECT_GT(s.records.back().bound.value, 0) << name;
  }
  EXPECT_THAT(message([&] { make_algorithm("soba", settings); }),
              AllOf(HasSubstr("soba"), HasSubstr("bound")));
}

TEST(Failure, choices_have_names_and_need_settings) {
  for (const char* name : {"stop", "backtrack", "damp"}) EXPECT_EQ(name_of(parse_on_failure(name)), name);
  EXPECT_THAT(message([] { parse_on_failure("pray"); }), AllOf(HasSubstr("pray"), HasSubstr("backtrack")));
  SolveOptions options;
  options.on_failure = OnFailure::damp;
  EXPECT_THAT(message([&] { options.validate(); }), AllOf(HasSubstr("damp"), HasSubstr("settings")));
}

}  // namespace
}  // namespace bilevel::test
