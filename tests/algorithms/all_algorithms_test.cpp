// What every rule of the registry must do: reach the best x of two problems where it is known, repeat its
// bits, differ with another seed, and be nobody else's code.
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "tests/algorithms/known_optima.h"

namespace bilevel::test {
namespace {

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const AlgorithmRow& row : algorithm_rows()) result.push_back(row.name);
  return result;
}

// How far each rule must get, as a part of the first hypergradient's norm, and what it needs for that beyond
// the settings that all share.
struct Asked {
  int64_t iterations = 1200;
  double part = 1e-4;
  double outer_rate = 1;  // times 1 / L
  int64_t inner_steps = 20;
  int64_t terms = 20;
  double joint_rate = 0;  // times 1 / L of the inner problem
};
Asked asked_of(const std::string& name, const std::string& problem) {
  // They find the best x of the T steps they unroll from the first w, so T must solve the inner problem.
  if (name == "reverse" || name == "krmd") return {.inner_steps = 100};
  // The same, with outer steps that fall like 1/sqrt(k).
  if (name == "storm-double-loop") {
    return {
        .iterations = 1000, .part = problem == "ridge" ? 1e-4 : 5e-2, .outer_rate = 3, .inner_steps = 100};
  }
  // Single loops follow w*(x) and v*(x) at a distance that the outer step makes.
  if (name == "soba") return {.iterations = 20000, .outer_rate = 0.05};
  // The variance of one random summand of b grows like b, so b and the step must be small: and then slow.
  if (name == "bsa") return {.iterations = 3000, .part = 1e-2, .outer_rate = 0.3, .terms = 5};
  // Its steps fall like k^(-3/5): 5000 of them add up to 73 of the first. In the quadratic's slowest
  // direction, at 1/97 of the largest curvature, that is exp(-73 * 5 / 97) = 0.02 at five times the usual
  // rate, which the falling steps allow there but not on ridge.
  if (name == "ttsa") {
    return problem == "ridge" ? Asked{.iterations = 5000, .terms = 5}
                              : Asked{.iterations = 5000, .part = 5e-2, .outer_rate = 5, .terms = 5};
  }
  // Steps that fall like 1/sqrt(k) add up to 141 of the first in 5000, too few for the quadratic's slowest
  // direction; and x's keep their ratio to w's, so that ridge, whose w*(x) is steep, needs smaller ones.
  if (name == "fsla") {
    return problem == "ridge" ? Asked{.iterations = 5000, .part = 1e-3, .outer_rate = 0.3}
                              : Asked{.iterations = 5000, .part = 5e-2};
  }
  if (name.starts_with("single-loop")) {
    return {.iterations = 2000, .part = problem == "ridge" ? 1e-4 : 5e-2, .outer_rate = 3};
  }
  if (name == "saba" || name == "ma-soba") return {.iterations = 4000, .outer_rate = 0.2};
  // Its hypergradient is random even on full sets, by the length of the series. The noise is a multiple of
  // grad_w f, which is zero at both best points, so that a constant rate gets there; but a smaller one.
  if (name == "sustain") return {.iterations = 8000, .outer_rate = 0.1};
  if (name == "vrbo") return {.iterations = 800, .inner_steps = 2};  // 2 T + 4 hypergradients an iteration
  // Where grad_w f is zero a penalty has no bias (first_order_test.cpp has the problem where it has one).
  if (name == "f2sa") return {.inner_steps = 5};
  // x moves no faster than the joint step carries w along, and that must be small because g counts lambda
  // times in it: joint_rate / |dw/dx|^2 is the speed, and 1e-2 is as far as a short test gets.
  // One step a turn, both ways: x may be no faster than w.
  if (name == "darts") return {.iterations = 20000, .outer_rate = 0.5};
  if (name == "bome")
    return {.iterations = 3000, .part = 1e-2, .outer_rate = 0.5, .inner_steps = 5, .joint_rate = 0.1};
  return {};
}

class EveryAlgorithm : public ::testing::TestWithParam<std::string> {};

// First-order DARTS sees df/dx alone, and the f of both problems has no x in it: it stays where it is. Its
// own tests are in darts_test.cpp.
bool sees_df_dx_alone(const std::string& name) { return name == "darts-first-order"; }

void expect_reaches_optimum(const std::string& name, const std::string& problem, const Known& known) {
  const Asked asked = asked_of(name, problem);
  AlgorithmSettings settings = settings_for(known);
  settings.outer.rate *= asked.outer_rate;
  settings.inner.steps = asked.inner_steps;
  settings.hypergradient.truncate = asked.inner_steps;
  settings.hypergradient.terms = asked.terms;
  settings.joint_rate = asked.joint_rate * known.inner_rate;
  SolveOptions options{.iterations = asked.iterations, .records = 1};
  options.settings = settings;  // so that it is watched
  const SolveSummary summary = solve_from(known, *make_algorithm(name, settings), options);
  ASSERT_EQ(summary.reason, StopReason::iterations) << summary.message;
  EXPECT_TRUE(summary.failures.empty()) << summary.failures.front().what;
  if (sees_df_dx_alone(name)) {
    EXPECT_TRUE(summary.state.x.equal(known.x));
    EXPECT_LT(relative_error(summary.state.inner.w, known.solution(known.x)), 1e-6);
    return;
  }
  EXPECT_LT(known.gradient_norm(summary.state.x), asked.part * known.gradient_norm(known.x));
}

TEST_P(EveryAlgorithm, reaches_the_best_x_of_the_quadratic) {
  expect_reaches_optimum(GetParam(), "quadratic", known_quadratic());
}
TEST_P(EveryAlgorithm, reaches_the_best_x_of_ridge) {
  expect_reaches_optimum(GetParam(), "ridge", known_ridge());
}

SolveSummary stochastic_run(const std::string& name, uint64_t seed) {
  const Known known = known_ridge();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate *= 0.2;
  settings.outer.rate *= 0.05;
  settings.inner.steps = 3;
  settings.hypergradient.truncate = 1;  // at w = 0 the cross product of ridge is zero: two steps would be all
  return solve_from(known, *make_algorithm(name, settings),
                    {.iterations = 8, .seed = seed, .batches = {.inner_batch = 4, .outer_batch = 4}});
}

TEST_P(EveryAlgorithm, repeats_its_bits_with_one_seed_and_differs_with_two) {
  const SolveSummary first = stochastic_run(GetParam(), 3);
  const SolveSummary again = stochastic_run(GetParam(), 3);
  const SolveSummary other = stochastic_run(GetParam(), 4);
  ASSERT_EQ(first.reason, StopReason::iterations) << first.message;
  EXPECT_TRUE(first.state.x.equal(again.state.x));
  EXPECT_TRUE(first.state.inner.w.equal(again.state.inner.w));
  EXPECT_EQ(first.state.x.equal(other.state.x), sees_df_dx_alone(GetParam()));
  EXPECT_FALSE(first.state.inner.w.equal(other.state.inner.w));
}

// A state is plain data: with the streams' positions it is all that a run goes on from.
TEST_P(EveryAlgorithm, goes_on_from_a_copied_state_with_the_same_bits) {
  const Known known = known_ridge();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.rate *= 0.2;
  settings.outer.rate *= 0.05;
  settings.inner.steps = 3;
  const auto algorithm = make_algorithm(GetParam(), settings);
  const StreamOptions batches{.inner_batch = 4, .outer_batch = 4};
  Oracle oracle(*known.problem);
  Streams streams(5, 12, 12, batches);
  AlgorithmState state = algorithm->init(oracle, known.x, known.w);
  for (int k = 0; k < 3; ++k) algorithm->step(oracle, state, streams);
  AlgorithmState copy = state;
  Streams resumed(5, 12, 12, batches);
  resumed.seek(streams.positions());
  for (int k = 0; k < 3; ++k) algorithm->step(oracle, state, streams);
  for (int k = 0; k < 3; ++k) algorithm->step(oracle, copy, resumed);
  EXPECT_TRUE(state.x.equal(copy.x));
  EXPECT_TRUE(state.inner.w.equal(copy.inner.w));
  EXPECT_EQ(state.iteration, 6);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EveryAlgorithm, ::testing::ValuesIn(names()),
                         [](const auto& row) { return test_name(row.param); });

// Rules that are the same mathematics under other settings; every other pair must part.
TEST(Algorithms, none_is_another_under_a_second_name) {
  const std::set<std::set<std::string>> twins = {{"double-loop", "aid-cg"}};
  std::vector<std::pair<std::string, Tensor>> points;
  for (const std::string& name : names()) points.emplace_back(name, stochastic_run(name, 3).state.x);
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool same = points[i].second.equal(points[j].second);
      const bool may_be_same = twins.contains({points[i].first, points[j].first});
      EXPECT_EQ(same, may_be_same) << points[i].first << " and " << points[j].first;
    }
  }
}

TEST(Algorithms, an_unknown_name_lists_the_known_ones) {
  try {
    make_algorithm("sobba", {});
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("'sobba'"), ::testing::HasSubstr("soba"),
                                               ::testing::HasSubstr("aid-cg")));
  }
}

}  // namespace
}  // namespace bilevel::test
