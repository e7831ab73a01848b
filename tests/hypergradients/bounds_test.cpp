// Errors fall at least as fast as the theory says: iDARTS's Theorem 1, K-RMD's Proposition 3.1, conjugate
// gradients' bound, the bound for any v; and K-RMD's Theorem 3.5, where truncation converges to the wrong
// point.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "bilevel/check/references.h"
#include "bilevel/problems/counterexample.h"
#include "bilevel/problems/registry.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

constexpr double floor_of_rounding = 1e-12;  // relative: below it an error is rounding

double spectral_norm(const Tensor& matrix) { return number(at::linalg_svdvals(matrix).max()); }
struct Extremes {
  double mu, largest;
};
Extremes extremes(const Tensor& symmetric) {
  const Tensor values = std::get<0>(at::linalg_eigh(symmetric));
  return {number(values.min()), number(values.max())};
}
// The convex problems at their solution, with everything that the bounds need.
class ConvexBounds : public ::testing::TestWithParam<std::string> {
 protected:
  ConvexBounds() : named(make_problem(GetParam())), problem(*named.problem), oracle(problem) {
    x = problem.initial_outer(0);
    x = x + 0.2 * random_like(x, 3);
    const ImplicitReference solved = implicit_reference(oracle, x, problem.initial_inner(0));
    reference = solved.value;
    w = solved.inner.w;
    at_solution = dense_at(problem, w, x);
    range = extremes(at_solution.hessian);
  }
  NamedProblem named;
  const Problem& problem;
  Oracle oracle;
  Tensor x, w, reference;
  Dense at_solution;
  Extremes range{};
};

TEST_P(ConvexBounds, neumann_falls_as_iDARTS_Theorem_1_says) {
  const double rate = 1 / range.largest, shrink = 1 - rate * range.mu;
  const double scale = spectral_norm(at_solution.cross) * length(at_solution.p) / range.mu;
  const Trajectory here = standing_at(w, rate);
  const double rounding = floor_of_rounding * length(reference);
  double first = 0, last = 0;
  for (int64_t terms = 0; terms <= 40; ++terms) {
    const double error =
        length(estimate_along("neumann", with_terms(terms), oracle, x, here).value - reference);
    EXPECT_LT(error, scale * std::pow(shrink, static_cast<double>(terms + 1)) + rounding) << terms;
    if (terms == 0) first = error;
    last = error;
  }
  EXPECT_LT(last, first * std::pow(shrink, 30) + rounding);  // and it does fall
}

TEST_P(ConvexBounds, cg_falls_as_chebyshev_says_and_is_done_in_n_steps) {
  const double root = std::sqrt(range.largest / range.mu);
  const double shrink = (root - 1) / (root + 1);
  const double scale = spectral_norm(at_solution.cross) * length(solve(at_solution.hessian, at_solution.p));
  const Trajectory here = standing_at(w);
  const double rounding = floor_of_rounding * length(reference);
  for (int64_t terms = 0; terms <= 40; ++terms) {
    const double error = length(estimate_along("cg", with_terms(terms), oracle, x, here).value - reference);
    EXPECT_LT(error, 2 * root * std::pow(shrink, static_cast<double>(terms)) * scale + rounding) << terms;
    if (terms >= w.numel()) {
      EXPECT_LT(error, 1e-10 * length(reference)) << terms;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, ConvexBounds,
                         ::testing::Values("toy", "quadratic", "ridge", "softmax-regression",
                                           "hyper-cleaning"),
                         [](const auto& row) { return test_name(row.param); });

// Proposition 3.1, for any trajectory: mu and |B_t| along the kept iterates, B_0 = dw_0/dx where the start is
// learned.
void expect_truncation_bound(const Problem& problem, const Tensor& x, const Tensor& start, int64_t steps,
                             double fraction_of_largest_rate) {
  Oracle oracle(problem);
  InnerOptions options;
  options.steps = steps;
  options.rate = fraction_of_largest_rate / extremes(dense_at(problem, start, x).hessian).largest;
  const Trajectory inner = run_all_kept(oracle, x, start, options);
  double mu = 1e300;
  std::vector<double> size = {0};  // |B_0|, |B_1|, ..., |B_T|
  if (inner.start_is_learned) {
    std::vector<Tensor> columns;
    for (const Tensor& u : at::eye(x.numel(), doubles()).unbind())
      columns.push_back(oracle.start_tangent(x, u));
    size[0] = spectral_norm(at::stack(columns, 1));
  }
  for (int64_t t = 0; t < steps; ++t) {
    const Dense d = dense_at(problem, inner.kept.at(t).w, x);
    const Extremes range = extremes(d.hessian);
    ASSERT_LE(options.rate * range.largest, 1 + 1e-12);  // the proposition needs it
    mu = std::min(mu, range.mu);
    size.push_back(options.rate * spectral_norm(d.cross));
  }
  const double p = length(dense_at(problem, inner.final.w, x).p);
  const Tensor unrolled = graph_hypergradient(problem, x, inner, 0, true);
  const double shrink = 1 - options.rate * mu;
  double first = 0, last = 0;
  for (int64_t terms = 1; terms < steps; ++terms) {
    const double largest = *std::max_element(size.begin(), size.end() - terms);  // t = 0 .. T-K
    const double bound = std::pow(shrink, static_cast<double>(terms)) / (options.rate * mu) * p * largest;
    const double error =
        length(estimate_along("truncated", with_terms(terms), oracle, x, inner).value - unrolled);
    EXPECT_LT(error, bound + floor_of_rounding * length(unrolled)) << terms;
    if (terms == 1) first = error;
    last = error;
  }
  EXPECT_LT(last, 0.3 * first);
}

TEST(Bounds, truncated_falls_as_KRMD_Proposition_3_1_says) {
  const NamedProblem toy = make_problem("toy"), ridge = make_problem("ridge"),
                     cleaning = make_problem("hyper-cleaning");
  for (const NamedProblem* named : {&toy, &ridge, &cleaning}) {
    SCOPED_TRACE(named->name);
    const Problem& problem = *named->problem;
    // Cleaning is flattest along its weights' start and steeper elsewhere: half the rate stays below 1/L all
    // the way.
    expect_truncation_bound(problem, problem.initial_outer(0), problem.initial_inner(0), 40,
                            named == &cleaning ? 0.5 : 1.0);
  }
}

TEST(Bounds, truncated_falls_as_KRMD_Proposition_3_1_says_where_the_start_is_learned) {
  class LearnedStart : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    Tensor inner_start(const Tensor& x) const override { return 5 * x; }
  };
  const NamedProblem toy = make_problem("toy");
  expect_truncation_bound(LearnedStart(*toy.problem), vec({0.4, -0.3}), vec({1, 1}), 40, 0.3);
}

// Against the implicit reference truncation cannot fall below the error of the inner problem.
TEST(Bounds, truncated_against_the_implicit_reference_floors_at_the_inner_error) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0);
  InnerOptions options;
  options.steps = 60;
  options.rate = 0.3;
  const Trajectory inner = run_all_kept(oracle, x, ridge.initial_inner(0), options);
  const Tensor implicit = ridge.hypergradient(x);
  const double inner_error = relative_error(inner.final.w, ridge.solution(x));
  ASSERT_GT(inner_error, 1e-4);
  for (const int64_t terms : {40, 50, 60}) {
    const Tensor value = estimate_along("truncated", with_terms(terms), oracle, x, inner).value;
    EXPECT_GT(relative_error(value, implicit), 0.1 * inner_error) << terms;
  }
  const Tensor all = estimate_along("truncated", with_terms(60), oracle, x, inner).value;
  EXPECT_LT(relative_error(all, graph_hypergradient(ridge, x, inner, 0, false)), 1e-13);
}

// docs/mathematics.md, "Errors": any v at any w. Ridge has all its constants in closed form: df/dw is linear
// with slope A_v'A_v / N_v, C = diag(exp(x) w), H does not depend on w, f has no x.
TEST(Bounds, the_error_of_any_implicit_estimate_is_bounded_by_what_is_left_unsolved) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor x = ridge.initial_outer(0) + 0.5 * random_vector(20, 1);
  const Tensor reference = ridge.hypergradient(x);
  const double slope_of_p = spectral_norm(ridge.valid_matrix().t().mm(ridge.valid_matrix())) / 50;
  const double slope_of_cross = number(x.exp().max());
  for (const int64_t steps : {3, 10, 30, 100, 300}) {
    InnerLoop run;
    run.options.steps = steps;
    run.options.rate = 0.3;
    const Trajectory inner = run_inner(oracle, x, ridge.initial_inner(0), run);
    const Dense d = dense_at(ridge, inner.final.w, x);
    const double mu = extremes(d.hessian).mu, cross = spectral_norm(d.cross);
    const double distance = inner.gradient_norm / mu, p = length(d.p) + slope_of_p * distance;
    for (const char* name : {"neumann", "cg", "fixed-point", "minres", "t1t2", "exact"}) {
      for (const int64_t terms : {0, 1, 4, 12}) {
        const Hypergradient found = estimate_along(name, with_terms(terms), oracle, x, inner);
        const double left = length(d.p - d.hessian.mv(found.solution));
        const double bound =
            (cross * slope_of_p / mu + slope_of_cross * p / mu) * distance + cross * left / mu;
        EXPECT_LT(length(found.value - reference), bound + floor_of_rounding * length(reference))
            << name << steps << terms;
      }
    }
  }
}

// Theorem 3.5: f has x in it directly, and the zero of the truncated hypergradient is elsewhere.
TEST(Bounds, truncation_converges_to_the_wrong_point_of_the_counterexample) {
  const Counterexample problem(doubles(), 1);
  Oracle oracle(problem);
  InnerOptions options;
  options.steps = 100;
  options.rate = 0.5;
  const auto descend = [&](const std::string& name, int64_t terms) {
    Tensor x = problem.initial_outer(0);
    const auto estimator = make_estimator(name, with_terms(terms));
    for (int i = 0; i < 60; ++i) {
      x = x -
          0.4 *
              hypergradient_at(oracle, x, problem.initial_inner(0), options, *estimator).hypergradient.value;
    }
    return number(x);
  };
  EXPECT_NEAR(descend("exact", 0), 0.5, 1e-12);
  EXPECT_NEAR(descend("reverse", 0), 0.5, 1e-12);
  for (const int64_t terms : {1, 2, 5}) {
    const double expected = 1 / (2 - std::pow(0.5, static_cast<double>(terms)));
    EXPECT_NEAR(descend("truncated", terms), expected, 1e-12);
    EXPECT_GT(expected - 0.5, 0.005);
  }
  const Trajectory inner = run_all_kept(oracle, vec({0.5}), problem.initial_inner(0), options);
  EXPECT_NEAR(number(estimate_along("truncated", with_terms(2), oracle, vec({0.5}), inner).value), -0.125,
              1e-12);
}

}  // namespace
}  // namespace bilevel::test
