// Every status of a linear solve has a reader: a run whose solves mostly fail ends with the cause and a way
// out, and one whose solves go up and down in their rounding or their noise does not.
#include "bilevel/algorithms/linear_solves.h"

#include <gmock/gmock.h>

#include "bilevel/algorithms/solve.h"
#include "bilevel/problems/registry.h"
#include "tests/algorithms/known_optima.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

SolveOptions two_hundred_steps(const AlgorithmSettings& settings, OnFailure on_failure = OnFailure::stop) {
  SolveOptions options{.iterations = 200, .records = 10};
  options.settings = settings;
  options.on_failure = on_failure;
  return options;
}

// The series grows at this rate, but slowly: nothing but the solves goes wrong for a long time.
AlgorithmSettings diverging_series(const Known& known) {
  AlgorithmSettings settings = settings_for(known);
  settings.hypergradient.terms = 10;
  settings.linear_rate = 1.1 * 2 * known.inner_rate;
  settings.outer.rate = 1e-6 * known.outer_rate;
  return settings;
}

TEST(LinearSolves, a_series_that_diverges_most_times_ends_the_run_with_the_rate_to_take) {
  const Known known = known_quadratic();
  const AlgorithmSettings settings = diverging_series(known);
  for (const char* name : {"idarts", "stocbio", "mrbo"}) {
    const SolveSummary s = solve_from(known, *make_algorithm(name, settings), two_hundred_steps(settings));
    EXPECT_EQ(s.reason, StopReason::failed) << name;
    EXPECT_LE(s.state.iteration, 20) << name;
    EXPECT_THAT(s.message,
                AllOf(HasSubstr("linear solves failed"), HasSubstr("diverged"),
                      HasSubstr("of the linear system is above 2/L"), HasSubstr("take --linear-rate")))
        << name;
  }
}

TEST(LinearSolves, a_run_too_short_to_be_ended_by_them_fails_at_its_end) {
  const Known known = known_quadratic();
  const AlgorithmSettings settings = diverging_series(known);
  SolveOptions options = two_hundred_steps(settings);
  options.iterations = 3;
  const SolveSummary s = solve_from(known, *make_algorithm("idarts", settings), options);
  EXPECT_EQ(s.reason, StopReason::failed);
  EXPECT_EQ(s.statuses.at("diverged"), 3);
  EXPECT_EQ(s.state.iteration, 3);
  EXPECT_THAT(s.message, HasSubstr("3 of 3 linear solves failed (in the whole run: 3 diverged)"));
  ASSERT_EQ(s.failures.size(), 1U);
  EXPECT_EQ(s.failures[0].repair, "none");
}

TEST(LinearSolves, backtracking_lowers_their_rate_and_goes_on) {
  const Known known = known_quadratic();
  const AlgorithmSettings settings = diverging_series(known);
  const SolveSummary s = solve_from(known, *make_algorithm("idarts", settings),
                                    two_hundred_steps(settings, OnFailure::backtrack));
  EXPECT_EQ(s.reason, StopReason::iterations) << s.message;
  ASSERT_EQ(s.failures.size(), 1U);
  EXPECT_THAT(s.failures[0].repair, HasSubstr("linear rate"));
  EXPECT_EQ(s.failures[0].answer, FailureAnswer::repaired);
  EXPECT_EQ(s.statuses.at("diverged"), 20);
  EXPECT_EQ(s.statuses.at("ok"), 200 - 20 + 1);  // the iteration that failed is taken again
}

TEST(LinearSolves, conjugate_gradients_that_meet_negative_curvature_most_times_end_the_run) {
  const NamedProblem mlp = make_problem("mlp");
  AlgorithmSettings settings;
  settings.inner = {.steps = 5, .rate = mlp.inner_rate};
  settings.outer.rate = 1e-3;
  const SolveSummary s =
      solve(*mlp.problem, *make_algorithm("aid-cg", settings), two_hundred_steps(settings));
  EXPECT_EQ(s.reason, StopReason::failed);
  EXPECT_THAT(s.message,
              AllOf(HasSubstr("negative"), HasSubstr("--damping"), HasSubstr("--curvature gauss-newton")));
  settings.hypergradient.curvature.kind = "gauss-newton";
  const SolveSummary safe =
      solve(*mlp.problem, *make_algorithm("aid-cg", settings), two_hundred_steps(settings));
  EXPECT_EQ(safe.reason, StopReason::iterations) << safe.message;
}

TEST(LinearSolves, a_short_series_on_a_network_is_a_formula_and_goes_on) {
  const NamedProblem mlp = make_problem("mlp");
  AlgorithmSettings settings;
  settings.inner = {.steps = 5, .rate = mlp.inner_rate};
  settings.outer.rate = 1e-3;
  settings.hypergradient.terms = 2;
  settings.linear_rate = 0.01;
  const SolveSummary s =
      solve(*mlp.problem, *make_algorithm("idarts", settings), two_hundred_steps(settings));
  EXPECT_EQ(s.reason, StopReason::iterations) << s.message;
}

TEST(LinearSolves, residuals_that_are_rounding_do_not_diverge) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.hypergradient.terms = 200;
  SolveOptions options = two_hundred_steps(settings);
  options.iterations = 1000;
  const SolveSummary s = solve_from(known, *make_algorithm("aid-fp", settings), options);
  EXPECT_EQ(s.reason, StopReason::iterations) << s.message;
  EXPECT_EQ(s.statuses.count("diverged"), 0U) << statuses_text(s.statuses);
}

TEST(LinearSolves, noise_of_new_batches_is_no_divergence) {
  const NamedProblem cleaning = make_problem("hyper-cleaning");
  AlgorithmSettings settings;
  settings.inner = {.steps = 5, .rate = 0.1 * cleaning.inner_rate};
  settings.outer.rate = 1;
  for (const char* name : {"amigo", "stocbio", "mrbo", "bsa", "ttsa", "aid-fp"}) {
    SolveOptions options = two_hundred_steps(settings);
    options.batches = {.inner_batch = 8, .outer_batch = 8};
    const SolveSummary s = solve(*cleaning.problem, *make_algorithm(name, settings), options);
    EXPECT_EQ(s.reason, StopReason::iterations) << name << ": " << s.message;
    EXPECT_FALSE(tally_of(s.statuses, true).most_failed()) << name << ": " << statuses_text(s.statuses);
  }
}

TEST(LinearSolves, damping_repairs_nothing_where_none_is_read) {
  const Known known = known_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.outer.rate *= 1e12;
  for (const char* name : {"itd", "f2sa"}) {
    const SolveSummary s =
        solve_from(known, *make_algorithm(name, settings), two_hundred_steps(settings, OnFailure::damp));
    EXPECT_TRUE(ended_badly(s.reason)) << name;
    ASSERT_EQ(s.failures.size(), 1U) << name;
    EXPECT_EQ(s.failures[0].repair, "none") << name;
  }
}

TEST(LinearSolves, the_most_frequent_status_comes_first) {
  EXPECT_EQ(statuses_text({{"converged", 2}, {"diverged", 180}}), "180 diverged, 2 converged");
  EXPECT_EQ(statuses_text({}), "none");
}

}  // namespace
}  // namespace bilevel::test
