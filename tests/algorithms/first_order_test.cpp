// F2SA and BOME, which take no second derivatives: the bias they pay for it, and how it falls.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bilevel/algorithms/f2sa.h"
#include "tests/algorithms/direct_term.h"
#include "tests/algorithms/known_optima.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two outer variables for three inner ones: grad_w f is not zero at the best x, and a penalty has a bias.
Known narrow_quadratic() {
  auto problem = std::make_unique<Quadratic>(
      QuadraticOptions{.dimension = 3, .outer_dimension = 2, .samples = 12, .seed = 11});
  const Quadratic* p = problem.get();
  Known known;
  known.hypergradient = [p](const Tensor& x) { return p->hypergradient(x); };
  known.solution = [p](const Tensor& x) { return p->solution(x); };
  known.x = p->initial_outer(0);
  known.w = p->initial_inner(0);
  known.inner_rate =
      1 / at::linalg_eigvalsh(2 * p->inner_matrix().t().mm(p->inner_matrix())).max().item<double>();
  known.outer_rate =
      1 / at::linalg_eigvalsh(outer_curvature(known.hypergradient, known.x, 1.0)).max().item<double>();
  known.problem = std::move(problem);
  return known;
}

double part_reached(const Known& known, const std::string& name, const AlgorithmSettings& settings,
                    int64_t iterations) {
  const SolveSummary summary =
      solve_from(known, *make_algorithm(name, settings), {.iterations = iterations, .records = 1});
  EXPECT_EQ(summary.reason, StopReason::iterations) << summary.message;
  return known.gradient_norm(summary.state.x) / known.gradient_norm(known.x);
}

TEST(FirstOrder, takes_no_second_derivative) {
  const Known known = known_ridge();
  for (const char* name : {"f2sa", "bome"}) {
    CountingProblem counted(*known.problem);
    AlgorithmSettings settings = settings_for(known);
    settings.outer.rate *= 0.01;
    const auto algorithm = make_algorithm(name, settings);
    Oracle oracle(counted);
    Streams streams(1, 12, 12);
    AlgorithmState state = algorithm->init(oracle, known.x, known.w);
    for (int k = 0; k < 5; ++k) algorithm->step(oracle, state, streams);
    EXPECT_TRUE(counted.calls().hessian.empty()) << name;
    EXPECT_TRUE(counted.calls().cross.empty()) << name;
    EXPECT_FALSE(counted.calls().inner_gradient.empty()) << name;
  }
}

// Lemma 3.1: with both inner problems solved the direction is off by O(1 / lambda).
TEST(F2sa, direction_goes_to_the_hypergradient_like_one_over_the_penalty) {
  for (const Known& known : {known_ridge(), narrow_quadratic()}) {
    const WithDirectTerm problem(*known.problem);
    const Dense d = dense_at(problem, known.solution(known.x), known.x);
    const Tensor exact = d.direct - d.cross.mv(test::solve(d.hessian, d.p));
    std::vector<double> errors;
    for (const double penalty : {1e2, 1e3, 1e4, 1e5}) {
      AlgorithmSettings settings = settings_for(known);
      settings.inner.steps = 1500;
      settings.penalty = penalty;
      const auto algorithm = make_algorithm("f2sa", settings);
      Oracle oracle(problem);
      Streams streams(1, 12, 12);
      AlgorithmState state = algorithm->init(oracle, known.x, known.w);
      errors.push_back(relative_error(algorithm->step(oracle, state, streams).direction, exact));
    }
    EXPECT_LT(errors[0], 0.1);
    EXPECT_NEAR(errors[0] / errors[1], 10, 1);
    EXPECT_NEAR(errors[1] / errors[2], 10, 0.1);
    EXPECT_NEAR(errors[2] / errors[3], 10, 0.1);
  }
}

TEST(F2sa, bias_of_x_falls_with_the_penalty_and_a_growing_one_takes_it_away) {
  const Known known = narrow_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.steps = 5;
  settings.penalty_growth = 0;
  const double at_10 = part_reached(known, "f2sa", settings, 800);
  settings.penalty = 100;
  const double at_100 = part_reached(known, "f2sa", settings, 800);
  EXPECT_NEAR(at_10 / at_100, 10, 1);
  settings.penalty = 10;
  settings.penalty_growth = 1.0 / 3;
  const double growing = part_reached(known, "f2sa", settings, 800);  // to 93
  EXPECT_NEAR(growing / at_100, 1, 0.2);
}

// The w of both rules follows f too. What is reported is trained on g alone: F2SA's z, and BOME's inner
// problem solved afresh.
TEST(FirstOrder, the_reported_w_is_the_inner_solution) {
  const Known known = narrow_quadratic();
  for (const char* name : {"f2sa", "bome"}) {
    AlgorithmSettings settings = settings_for(known);
    settings.inner.steps = 20;
    settings.penalty = 3;
    settings.penalty_growth = 0;
    if (std::string(name) == "bome") settings.outer.rate *= 0.1;
    settings.joint_rate = 0.1 * known.inner_rate;
    const SolveSummary summary = solve_from(known, *make_algorithm(name, settings),
                                            {.iterations = 200, .records = 2, .keep_points = true});
    ASSERT_EQ(summary.reason, StopReason::iterations) << summary.message;
    const Tensor solution = known.solution(summary.state.x);
    const double reported = relative_error(summary.inner_solution, solution);
    const double own = relative_error(summary.state.inner.w, solution);
    EXPECT_LT(reported, std::string(name) == "bome" ? 1e-7 : 1e-4) << name;
    EXPECT_GT(own, 100 * reported) << name;
    const SolveRecord& last = summary.records.back();
    EXPECT_TRUE(last.w.equal(summary.inner_solution));
    EXPECT_EQ(last.outer_loss, number(known.problem->outer_loss(last.w, last.x, {}))) << name;
    EXPECT_NE(last.outer_loss, number(known.problem->outer_loss(summary.state.inner.w, last.x, {})));
    // Nobody pays for it.
    EXPECT_EQ(last.counts.inner_gradient, summary.counts.inner_gradient);
    EXPECT_EQ(summary.counts.inner_gradient, 200 * (std::string(name) == "bome" ? 20 + 3 : 2 * 20 + 2));
  }
  // Everybody else's is the state's.
  const SolveSummary aid =
      solve_from(known, *make_algorithm("aid-cg", settings_for(known)), {.iterations = 3, .records = 1});
  EXPECT_TRUE(aid.inner_solution.equal(aid.state.inner.w));
}

TEST(F2sa, penalty_grows_by_its_power) {
  const F2sa rule({.penalty = 3, .growth = 1.0 / 7});
  EXPECT_DOUBLE_EQ(rule.penalty(0), 3);
  EXPECT_NEAR(rule.penalty(127), 6, 1e-12);
  const F2sa constant({.penalty = 3, .growth = 0});
  EXPECT_DOUBLE_EQ(constant.penalty(1000), 3);
}

// The difference that lambda multiplies is one of two points, not of two samples.
TEST(F2sa, w_and_z_share_their_samples_of_g) {
  const Known known = known_ridge();
  CountingProblem counted(*known.problem);
  AlgorithmSettings settings = settings_for(known);
  settings.inner.steps = 3;
  settings.inner.rate *= 0.2;
  const auto algorithm = make_algorithm("f2sa", settings);
  Oracle oracle(counted);
  Streams streams(1, 12, 12, {.inner_batch = 4, .outer_batch = 4});
  AlgorithmState state = algorithm->init(oracle, known.x, known.w);
  algorithm->step(oracle, state, streams);
  const std::vector<Batch>& calls = counted.calls().inner_gradient;
  ASSERT_EQ(calls.size(), 8U);
  for (size_t i = 0; i < 8; i += 2) {
    EXPECT_TRUE(calls[i].index.equal(calls[i + 1].index));
    EXPECT_EQ(calls[i].seed, calls[i + 1].seed);
    if (i > 0) {
      EXPECT_NE(calls[i].seed, calls[i - 1].seed);
    }
  }
}

// One step by hand, grad_x g by differences of the loss.
struct BomeByHand {
  Tensor w, x, direction;
  double lambda;
};
BomeByHand bome_by_hand(const Problem& problem, const AlgorithmSettings& s, const Tensor& w,
                        const Tensor& x) {
  Tensor solved = w;
  for (int64_t t = 0; t < s.inner.steps; ++t) {
    solved = solved - s.inner.rate * dense_at(problem, solved, x).gradient;
  }
  const auto q = [&](const Tensor& at) {
    return number(problem.inner_loss(w, at, {}) - problem.inner_loss(solved, at, {}));
  };
  const Dense d = dense_at(problem, w, x);
  const Tensor q_x = finite_differences(q, x);
  const double joint = s.joint_rate > 0 ? s.joint_rate : s.outer.rate;
  // In the scaled variable y = x sqrt(joint / rate) all of it moves with one rate, as printed.
  const double scale = std::sqrt(s.outer.rate / joint);
  const Tensor of_f = at::cat({d.p, scale * d.direct}), of_q = at::cat({d.gradient, scale * q_x});
  const double square = number(of_q.dot(of_q));
  const double lambda = std::max(0.0, (s.barrier * square - number(of_f.dot(of_q))) / square);
  const Tensor moved = at::cat({w, x / scale}) - joint * (of_f + lambda * of_q);
  const auto parts = moved.split_with_sizes({w.numel(), x.numel()});
  return {parts[0], scale * parts[1], d.direct + lambda * q_x, lambda};
}

TEST(Bome, steps_as_printed_with_the_multiplier_on_and_off) {
  const Known known = known_ridge();
  const WithDirectTerm problem(*known.problem);
  AlgorithmSettings settings = settings_for(known);
  settings.inner.steps = 4;
  settings.outer.rate = 0.01;
  for (const double joint : {0.0, 0.05}) {
    settings.joint_rate = joint;
    int on = 0, off = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Tensor w = random_vector(3, seed);
      for (const double barrier : {2.0, 1e-3}) {
        settings.barrier = barrier;
        const BomeByHand expected = bome_by_hand(problem, settings, w, known.x);
        const auto algorithm = make_algorithm("bome", settings);
        Oracle oracle(problem);
        Streams streams(1, 12, 12);
        AlgorithmState state = algorithm->init(oracle, known.x, w);
        const IterationSummary summary = algorithm->step(oracle, state, streams);
        EXPECT_LT(length(summary.direction - expected.direction), 1e-7);
        EXPECT_LT(relative_error(state.inner.w, expected.w), 1e-8);
        EXPECT_LT(relative_error(state.x, expected.x), 1e-8);
        ++(expected.lambda > 0 ? on : off);
      }
    }
    EXPECT_GT(on, 4);
    EXPECT_GT(off, 4);
  }
}

TEST(Bome, a_solved_w_is_no_division_by_zero) {
  // g = w^2 / 2 and f = (w - 1)^2 / 2 + x^2 / 2: at w = 0 the gap's gradient is zero to the last bit.
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch&) { return (w * w / 2 + 0 * x).sum(); },
      [](const Tensor& w, const Tensor& x, const Batch&) { return ((w - 1).square() / 2 + x * x / 2).sum(); },
      vec({0}), vec({1}));
  AlgorithmSettings settings;
  settings.outer.rate = 0.5;
  const auto algorithm = make_algorithm("bome", settings);
  Oracle oracle(problem);
  Streams streams(1, 1, 1);
  AlgorithmState state = algorithm->init(oracle, vec({1}), vec({0}));
  algorithm->step(oracle, state, streams);
  EXPECT_DOUBLE_EQ(number(state.x), 0.5);
  EXPECT_DOUBLE_EQ(number(state.inner.w), 0.5);
}

// lambda cannot pass 2 / (rate L), so that the rate is its bias.
TEST(Bome, bias_of_x_falls_with_the_rate) {
  const Known known = narrow_quadratic();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.steps = 10;
  const double full = settings.outer.rate;
  settings.outer.rate = 0.3 * full;
  const double large = part_reached(known, "bome", settings, 3000);
  settings.outer.rate = 0.1 * full;
  const double small = part_reached(known, "bome", settings, 4000);
  EXPECT_NEAR(large / small, 3, 0.6);
  EXPECT_LT(large, 0.02);
}

TEST(FirstOrder, misuse_names_the_option) {
  AlgorithmSettings settings;
  settings.penalty = -2;
  EXPECT_THAT(message([&] { make_algorithm("f2sa", settings); }),
              AllOf(HasSubstr("penalty"), HasSubstr("-2")));
  settings.penalty = 1;
  settings.penalty_growth = -1;
  EXPECT_THAT(message([&] { make_algorithm("f2sa", settings); }), HasSubstr("growth"));
  settings.barrier = 0;
  EXPECT_THAT(message([&] { make_algorithm("bome", settings); }), HasSubstr("barrier"));
  settings.barrier = 0.5;
  settings.joint_rate = -1;
  EXPECT_THAT(message([&] { make_algorithm("bome", settings); }), HasSubstr("joint_rate"));
}

}  // namespace
}  // namespace bilevel::test
