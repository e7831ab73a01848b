// The identities of docs/mathematics.md ("Identities", "What K counts"), one test each.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "bilevel/core/linear_solve.h"
#include "bilevel/hypergradients/general.h"
#include "bilevel/problems/counterexample.h"
#include "bilevel/problems/learned_rate.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/quadratic.h"
#include "bilevel/problems/ridge.h"
#include "bilevel/problems/toy.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

InnerOptions descent(int64_t steps, double rate) {
  InnerOptions options;
  options.steps = steps;
  options.rate = rate;
  return options;
}
Tensor value_of(const std::string& name, int64_t terms, Oracle& oracle, const Tensor& x,
                const Trajectory& inner) {
  return estimate_along(name, with_terms(terms), oracle, x, inner).value;
}

TEST(Identity, truncated_at_T_is_reverse_is_forward_is_autograd) {
  const Mlp problem;
  Oracle oracle(problem);
  const Tensor x = problem.initial_outer(0) + 0.3 * random_like(problem.initial_outer(0), 1);
  const Trajectory inner = run_all_kept(oracle, x, problem.initial_inner(0), descent(20, 0.3));
  const Tensor reverse = value_of("reverse", 0, oracle, x, inner);
  EXPECT_LT(relative_error(reverse, graph_hypergradient(problem, x, inner, 0, false)), 1e-13);
  EXPECT_LT(relative_error(value_of("forward", 0, oracle, x, inner), reverse), 1e-12);
  EXPECT_TRUE(at::equal(value_of("truncated", 20, oracle, x, inner), reverse));
  EXPECT_TRUE(at::equal(value_of("truncated", 1000, oracle, x, inner), reverse));  // more than T means T
  EXPECT_GT(relative_error(value_of("truncated", 19, oracle, x, inner), reverse), 1e-4);
}

// Where w_0 belongs to x, reverse has one term more than truncated(T), B_0 a_0, and it lies in the start's
// part of x.
TEST(Identity, reverse_has_one_term_more_where_the_start_is_learned) {
  const LearnedRate problem;
  Oracle oracle(problem);
  const Tensor x = problem.initial_outer(0);
  const Trajectory inner = run_all_kept(oracle, x, problem.initial_inner(0), descent(8, 1));
  const Tensor more = value_of("reverse", 0, oracle, x, inner) - value_of("truncated", 8, oracle, x, inner);
  const Tensor expected =
      graph_hypergradient(problem, x, inner, 0, true) - graph_hypergradient(problem, x, inner, 0, false);
  EXPECT_LT(relative_error(more, expected), 1e-12);
  EXPECT_GT(length(more.narrow(0, 2, 35)), 1e-3);
  EXPECT_LT(length(more.narrow(0, 0, 2)) + length(more.narrow(0, 37, 2)), 1e-15);
}

TEST(Identity, checkpointed_is_reverse_bit_for_bit) {
  const LearnedRate learned;
  const Mlp mlp;
  for (const Problem* problem : {static_cast<const Problem*>(&learned), static_cast<const Problem*>(&mlp)}) {
    for (const char* optimizer : {"gd", "adam"}) {
      Oracle oracle(*problem);
      const Tensor x = problem->initial_outer(0);
      InnerOptions options = descent(23, 0.1);
      options.optimizer = optimizer;
      options.schedule = {ScheduleKind::linear, 50, 0};
      const InnerBatches batches = [&](int64_t t) {
        return Batch{Random(static_cast<uint64_t>(t)).permutation(problem->inner_samples()).narrow(0, 0, 9)};
      };
      const Trajectory all = run_all_kept(oracle, x, problem->initial_inner(0), options, batches);
      const Tensor reverse = value_of("reverse", 0, oracle, x, all);
      for (const int64_t slots : {1, 2, 3, 8, 23, 100}) {
        EstimatorSettings settings;
        settings.byte_budget = slots * all.final.bytes();
        for (const char* name : {"reverse-sqrt", "reverse-binomial"}) {
          const auto estimator = make_estimator(name, settings);
          InnerLoop run{
              .options = options, .keep = estimator->keeps(23, all.final.bytes()), .batches = batches};
          Trajectory inner = run_inner(oracle, x, problem->initial_inner(0), run);
          EXPECT_TRUE(at::equal(estimator->estimate(oracle, {.x = x, .inner = inner}).value, reverse))
              << name << slots;
          // Once more along the same trajectory, although binomial has freed its states but the first.
          EXPECT_TRUE(at::equal(estimator->estimate(oracle, {.x = x, .inner = inner}).value, reverse))
              << name << slots;
        }
      }
    }
  }
}

TEST(Identity, reverse_T_is_neumann_T_minus_1_where_H_and_C_are_constant) {
  const Toy toy(doubles());
  const Quadratic quadratic({.outer_dimension = 3, .samples = 200});
  const Counterexample counterexample(doubles());
  const std::vector<std::pair<const Problem*, double>> all = {
      {&toy, 0.1}, {&quadratic, 1e-3}, {&counterexample, 0.5}};
  for (const auto& [problem, rate] : all) {
    Oracle oracle(*problem);
    const Tensor x = problem->initial_outer(0);
    const Trajectory inner = run_all_kept(oracle, x, 3 * problem->initial_inner(5), descent(9, rate));
    const Tensor reverse = value_of("reverse", 0, oracle, x, inner);
    EXPECT_LT(relative_error(value_of("neumann", 8, oracle, x, inner), reverse), 1e-13);
    EXPECT_GT(relative_error(value_of("neumann", 9, oracle, x, inner), reverse), 1e-4);  // not the same K
    EXPECT_LT(
        relative_error(value_of("truncated", 4, oracle, x, inner), value_of("neumann", 3, oracle, x, inner)),
        1e-13);
  }
}

// Elsewhere the two agree at a stationary point only ("What K counts": truncated(K) = neumann(K-1), not
// neumann(K)).
TEST(Identity, truncated_K_is_neumann_K_minus_1_at_a_stationary_point) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0);
  const Trajectory still = run_all_kept(oracle, x, ridge.solution(x), descent(12, 0.3));
  ASSERT_LT(still.gradient_norm, 1e-14);
  for (const int64_t terms : {1, 2, 5, 12}) {
    const Tensor truncated = value_of("truncated", terms, oracle, x, still);
    EXPECT_LT(relative_error(value_of("neumann", terms - 1, oracle, x, still), truncated), 1e-12);
    EXPECT_GT(relative_error(value_of("neumann", terms, oracle, x, still), truncated), 1e-3);
  }
  const Trajectory moving = run_all_kept(oracle, x, ridge.initial_inner(0), descent(12, 0.3));
  EXPECT_GT(
      relative_error(value_of("neumann", 11, oracle, x, moving), value_of("reverse", 0, oracle, x, moving)),
      1e-3);
}

TEST(Identity, cg_with_n_steps_is_exact_and_so_are_minres_and_full_rank_nystrom) {
  const Ridge ridge({.features = 12});
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0);
  const Trajectory inner = run_all_kept(oracle, x, ridge.initial_inner(0), descent(5, 0.3));
  const Tensor exact = value_of("exact", 0, oracle, x, inner);
  for (const char* name : {"cg", "minres", "nystrom"}) {
    EXPECT_LT(relative_error(value_of(name, 12, oracle, x, inner), exact), 1e-11) << name;
    EXPECT_GT(relative_error(value_of(name, 4, oracle, x, inner), exact), 1e-6) << name;
  }
}

// one-step: C before the step, p after it. neumann(0) takes both after it.
TEST(Identity, one_step_is_truncated_1_and_neumann_0_only_where_the_step_does_not_move) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0);
  const Trajectory moving = run_all_kept(oracle, x, random_vector(20, 1), descent(3, 0.3));
  const Tensor one_step = value_of("one-step", 0, oracle, x, moving);
  EXPECT_TRUE(at::equal(one_step, value_of("truncated", 1, oracle, x, moving)));
  const Dense before = dense_at(ridge, moving.kept.at(2).w, x), after = dense_at(ridge, moving.final.w, x);
  EXPECT_LT(relative_error(one_step, after.direct - 0.3 * before.cross.mv(after.p)), 1e-14);
  const Tensor neumann = value_of("neumann", 0, oracle, x, moving);
  EXPECT_LT(relative_error(neumann, after.direct - 0.3 * after.cross.mv(after.p)), 1e-14);
  EXPECT_GT(relative_error(neumann, one_step), 0.01);
  const Trajectory still = run_all_kept(oracle, x, ridge.solution(x), descent(3, 0.3));
  EXPECT_LT(
      relative_error(value_of("neumann", 0, oracle, x, still), value_of("one-step", 0, oracle, x, still)),
      1e-12);
}

TEST(Identity, zero_terms_are_legal) {
  const Toy toy(doubles(), true);  // its df/dx is not zero
  Oracle oracle(toy);
  const Tensor x = toy.initial_outer(0);
  const Trajectory inner = run_all_kept(oracle, x, toy.initial_inner(0), descent(10, 0.1));
  const Dense d = dense_at(toy, inner.final.w, x);
  for (const char* name : {"truncated", "cg", "minres", "fixed-point"}) {
    EXPECT_TRUE(at::equal(value_of(name, 0, oracle, x, inner), d.direct)) << name;
  }
  EXPECT_LT(relative_error(value_of("neumann", 0, oracle, x, inner), d.direct - 0.1 * d.cross.mv(d.p)),
            1e-15);
  const Trajectory none = run_all_kept(oracle, x, toy.initial_inner(0), descent(0, 0.1));
  const Dense start = dense_at(toy, toy.initial_inner(0), x);
  for (const char* name : {"reverse", "reverse-sqrt", "reverse-binomial", "truncated", "forward", "one-step",
                           "general-backward", "general-forward"}) {
    EXPECT_TRUE(at::equal(value_of(name, 3, oracle, x, none), start.direct)) << name;
  }
}

TEST(Identity, fixed_point_S_from_zero_is_neumann_S_minus_1) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0);
  const Trajectory inner = run_all_kept(oracle, x, ridge.initial_inner(0), descent(5, 0.3));
  for (const int64_t steps : {1, 2, 7, 40}) {
    EXPECT_LT(relative_error(value_of("fixed-point", steps, oracle, x, inner),
                             value_of("neumann", steps - 1, oracle, x, inner)),
              1e-13);
  }
}

TEST(Identity, t1t2_replaces_the_inverse_by_the_identity) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0);
  const Trajectory inner = run_all_kept(oracle, x, ridge.initial_inner(0), descent(5, 0.3));
  const Dense d = dense_at(ridge, inner.final.w, x);
  EXPECT_LT(relative_error(value_of("t1t2", 0, oracle, x, inner), d.direct - d.cross.mv(d.p)), 1e-14);
}

// FSLA's general form over the sequences that make it back-propagation and a Neumann series.
TEST(Identity, general_backward_is_reverse_over_the_iterates_and_neumann_over_one_point) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0);
  InnerOptions options = descent(9, 0.3);
  options.schedule = {ScheduleKind::inverse_sqrt, 0,
                      0};  // BP's coefficient at w_k: the rate of the step that leaves it
  const Trajectory inner = run_all_kept(oracle, x, random_vector(20, 1), options);
  EXPECT_LT(relative_error(value_of("general-backward", 0, oracle, x, inner),
                           value_of("reverse", 0, oracle, x, inner)),
            1e-14);
  const Dense d = dense_at(ridge, inner.final.w, x);
  std::vector<Tensor> points, shifted;
  std::vector<StepRate> rates;
  for (int64_t t = 0; t < 9; ++t) {
    points.push_back(inner.kept.at(t).w);
    shifted.push_back(t < 8 ? inner.kept.at(t + 1).w : inner.final.w);
    rates.push_back(inner.rate(inner.kept.at(t)));
  }
  const Tensor reverse = value_of("reverse", 0, oracle, x, inner);
  EXPECT_LT(relative_error(d.direct - general_backward_sum(oracle, x, points, d.p, rates), reverse), 1e-14);
  EXPECT_GT(relative_error(d.direct - general_backward_sum(oracle, x, shifted, d.p, rates), reverse), 1e-3);
  // NS with K summands is neumann(K - 1), in either mode.
  const std::vector<Tensor> one_point(7, inner.final.w);
  const std::vector<StepRate> one_rate(7, StepRate{0.2, {}});
  const Tensor series = d.cross.mv(dense_neumann(d.hessian, d.p, 0.2, 6));
  EXPECT_LT(relative_error(general_backward_sum(oracle, x, one_point, d.p, one_rate), series), 1e-13);
  Tensor solution;
  const Tensor forward = general_forward_sum(oracle, x, std::vector<Tensor>(8, inner.final.w),
                                             std::vector<Tensor>(7, d.p), one_rate, {}, &solution);
  EXPECT_LT(relative_error(forward, series), 1e-13);
  EXPECT_LT(relative_error(solution, dense_neumann(d.hessian, d.p, 0.2, 6)), 1e-13);
}

// v_{k+1} = v_k + beta_k (p_k - H v_k) is conjugate gradients where beta_k is its step and p_k = p + b_k
// d_{k-1}.
TEST(Identity, general_forward_reproduces_conjugate_gradients) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0), w = random_vector(20, 1);
  const Dense d = dense_at(ridge, w, x);
  std::vector<Tensor> ps;
  std::vector<StepRate> betas;
  Tensor v = at::zeros_like(w), r = d.p, direction = at::zeros_like(w);
  double b = 0;
  for (int k = 0; k < 6; ++k) {
    ps.push_back(d.p + b * direction);
    direction = r + b * direction;
    const Tensor q = d.hessian.mv(direction);
    betas.push_back({number(r.dot(r) / direction.dot(q)), {}});
    const Tensor next = r - betas.back().value * q;
    b = number(next.dot(next) / r.dot(r));
    r = next;
    Tensor solution;
    const Tensor sum =
        general_forward_sum(oracle, x, std::vector<Tensor>(ps.size() + 1, w), ps, betas, {}, &solution);
    Trajectory here = standing_at(w);
    const Hypergradient cg = estimate_along("cg", with_terms(k + 1), oracle, x, here);
    EXPECT_LT(relative_error(solution, cg.solution), 1e-12);
    EXPECT_LT(relative_error(d.direct - sum, cg.value), 1e-12);
  }
}

// K-RMD's toy: truncation is a descent direction everywhere on [-4,4]^2.
TEST(Identity, on_the_toy_truncation_is_a_descent_direction_with_the_stored_smallest_ratio) {
  const Toy toy(doubles());
  Oracle oracle(toy);
  // The smallest ratio lies where the first entry of p vanishes: at w = 0 there, and so at this x.
  const double shrunk = std::pow(0.9, 100);
  std::vector<double> grid = {-2 * shrunk / (1 - shrunk)};
  for (double at = -4; at <= 4; at += 1.6) grid.push_back(at);
  double smallest[2] = {1e9, 1e9};
  for (const double x0 : grid) {
    for (const double x1 : grid) {
      const Tensor x = vec({x0, x1});
      const Trajectory inner = run_all_kept(oracle, x, toy.initial_inner(0), descent(100, 0.1));
      const Tensor unrolled = value_of("reverse", 0, oracle, x, inner);
      for (const int which : {0, 1}) {
        const Tensor truncated = value_of("truncated", which == 0 ? 1 : 5, oracle, x, inner);
        const double ratio = number(truncated.dot(unrolled) / unrolled.dot(unrolled));
        EXPECT_GT(ratio, 0);
        smallest[which] = std::min(smallest[which], ratio);
      }
    }
  }
  EXPECT_NEAR(smallest[0], 0.050, 5e-4);
  EXPECT_NEAR(smallest[1], 0.228, 5e-4);
}

TEST(Identity, on_the_interfering_toy_truncation_does_not_vanish_where_the_unrolled_gradient_does) {
  const Toy toy(doubles(), true);
  Oracle oracle(toy);
  const auto along = [&](const Tensor& x) {
    return run_all_kept(oracle, x, toy.initial_inner(0), descent(100, 0.1));
  };
  const auto unrolled = [&](const Tensor& x) { return value_of("reverse", 0, oracle, x, along(x)); };
  // The stored x has five digits: Newton's method finds the rest.
  const Tensor stored = vec({0.32670, -0.00816});
  Tensor x = stored;
  for (int i = 0; i < 3; ++i) {
    const double step = 1e-5;
    std::vector<Tensor> columns;
    for (const Tensor& u : {vec({step, 0}), vec({0, step})})
      columns.push_back((unrolled(x + u) - unrolled(x - u)) / (2 * step));
    x = x - solve(at::stack(columns, 1), unrolled(x));
  }
  EXPECT_LT(length(unrolled(x)), 1e-12);
  EXPECT_LT(number((x - stored).abs().max()), 5.1e-6);
  const Trajectory inner = along(x);
  const std::vector<std::pair<int64_t, double>> lengths = {
      {1, 6.060}, {5, 3.976}, {10, 2.348}, {25, 0.4837}, {50, 0.0350}};
  for (const auto& [terms, stored_length] : lengths) {
    const double last_digit = stored_length >= 1 ? 5.1e-4 : 5.1e-5;
    EXPECT_NEAR(length(value_of("truncated", terms, oracle, x, inner)), stored_length, last_digit) << terms;
  }
}

}  // namespace
}  // namespace bilevel::test
