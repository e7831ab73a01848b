// The cross product: every estimator on every problem, in double precision, against a formula that shares no
// code with it. Unrolled estimators against automatic differentiation through the graph and finite
// differences of the whole objective; implicit ones against dense matrices, the implicit reference, closed
// forms and finite differences of the solved objective.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include "bilevel/check/references.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/problems/counterexample.h"
#include "bilevel/problems/quadratic.h"
#include "bilevel/problems/registry.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"
#include "tests/unsolved_setting.h"

namespace bilevel::test {
namespace {

std::vector<std::string> problem_names() {
  std::vector<std::string> names;
  for (const ProblemRow& row : problem_rows()) names.push_back(row.name);
  return names;
}
std::vector<std::string> estimator_names() {
  std::vector<std::string> names;
  for (const EstimatorRow& row : estimator_rows()) names.push_back(row.name);
  return names;
}
const std::set<std::string>& reverse_family() {
  static const std::set<std::string> names = {"reverse", "reverse-sqrt", "reverse-binomial", "forward"};
  return names;
}

// An orthonormal basis of span {p, A p, ..., A^(size-1) p}, of fewer vectors where the space is smaller.
Tensor krylov_basis(const Tensor& a, const Tensor& p, int64_t size) {
  std::vector<Tensor> basis;
  Tensor next = p;
  while (static_cast<int64_t>(basis.size()) < size) {
    const double before = length(next);
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (const Tensor& q : basis) next = next - q * q.dot(next);
    }
    if (length(next) <= 1e-12 * before) break;
    basis.push_back(next / next.norm());
    next = a.mv(basis.back());
  }
  return at::stack(basis, 1);
}

// (low rank + rho)^-1 p with the low rank part A O (O'A O)^-1 O'A; without rho the rest is as curved as the
// flattest direction that was found.
Tensor dense_nystrom(const Tensor& a, const Tensor& p, int64_t rank, uint64_t seed, double rho) {
  const int64_t n = p.numel();
  const Tensor directions = Random(seed).normal({n, std::min(rank, n)}, doubles());
  const Tensor y = a.mm(directions);
  const Tensor low = y.mm(at::linalg_solve(directions.t().mm(y), y.t().contiguous()));
  if (rho > 0) return solve(low + rho * at::eye(n, doubles()), p);
  const auto [values, vectors] = at::linalg_eigh(0.5 * (low + low.t()));
  const int64_t found = directions.size(1);
  const Tensor top = vectors.narrow(1, n - found, found), curved = values.narrow(0, n - found, found);
  const Tensor inside = top.t().mv(p);
  return top.mv(inside / curved) + (p - top.mv(inside)) / curved.min();
}

Tensor times(const Tensor& t, const StepRate& rate) {
  return rate.learned.defined() ? t * rate.learned : t * rate.value;
}

// Lemma 2 of FSLA over the iterates by dense matrices, in either mode.
Tensor dense_general(const Problem& problem, const Tensor& x, const Trajectory& inner, bool backward) {
  const int64_t steps = inner.steps();
  const Dense last = dense_at(problem, inner.final.w, x);
  Tensor h = last.direct, a = last.p, v = at::zeros_like(last.p);
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = backward ? steps - 1 - k : k;
    const InnerState& state = inner.kept.at(t);
    const Dense here = dense_at(problem, state.w, x);
    const StepRate rate = inner.rate(state);
    if (backward) {
      h = h - here.cross.mv(times(a, rate));
      a = a - here.hessian.mv(times(a, rate));
    } else {
      v = v + times(here.p - here.hessian.mv(v), rate);
    }
  }
  return backward ? h : h - last.cross.mv(v);
}

Tensor expected_value(const std::string& name, const UnsolvedSetting& s, const Trajectory& inner) {
  const int64_t steps = inner.steps();
  if (reverse_family().count(name)) return graph_hypergradient(s.problem, s.x, inner, 0, true);
  if (name == "one-step") return graph_hypergradient(s.problem, s.x, inner, steps - 1, false);
  if (name == "truncated")
    return graph_hypergradient(s.problem, s.x, inner, steps - s.settings.truncate, false);
  if (name == "general-backward" || name == "general-forward") {
    return dense_general(s.problem, s.x, inner, name == "general-backward");
  }
  const Dense d = dense_at(s.problem, inner.final.w, s.x);
  const double rho = s.settings.curvature.damping;
  const Tensor a = d.hessian + rho * at::eye(d.p.numel(), doubles());
  const int64_t terms = s.settings.terms;
  Tensor v;
  if (name == "t1t2") v = d.p;
  if (name == "exact") v = solve(a, d.p);
  if (name == "neumann") v = dense_neumann(a, d.p, inner.last_rate(), terms);
  if (name == "fixed-point") v = dense_neumann(a, d.p, inner.last_rate(), terms - 1);
  if (name == "nystrom") v = dense_nystrom(d.hessian, d.p, terms, s.settings.seed, rho);
  if (name == "cg" || name == "minres") {
    const Tensor q = krylov_basis(a, d.p, terms), aq = a.mm(q);
    // The best point of the Krylov space: in the energy norm, and by the residual.
    const Tensor left = name == "cg" ? q : aq;
    v = q.mv(solve(left.t().mm(aq), left.t().mv(d.p)));
  }
  return v.defined() ? d.direct - d.cross.mv(v) : Tensor();
}

class EveryPair : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(EveryPair, is_its_formula_at_an_unsolved_inner_problem) {
  const auto& [estimator, problem_name] = GetParam();
  const UnsolvedSetting s(problem_name);
  Oracle oracle(s.problem);
  const Trajectory inner = run_all_kept(oracle, s.x, s.start, s.options);
  const Tensor expected = expected_value(estimator, s, inner);
  ASSERT_TRUE(expected.defined()) << "a new estimator needs its formula in this test";
  const Hypergradient found = estimate_along(estimator, s.settings, oracle, s.x, inner);
  EXPECT_LT(relative_error(found.value, expected), 1e-10);
  EXPECT_GT(length(expected), 1e-8);
  EXPECT_NEAR(number(found.outer_loss), number(s.problem.outer_loss(inner.final.w, s.x, {})),
              1e-14 * length(found.outer_loss));
  EXPECT_LE(length(found.direct - dense_at(s.problem, inner.final.w, s.x).direct), 1e-12 * length(expected));
  EXPECT_EQ(found.inner_gradient_norm, inner.gradient_norm);
  EXPECT_TRUE(found.status == Status::ok || found.status == Status::converged ||
              found.status == Status::max_iterations)
      << name_of(found.status);
  // What the estimator asks to be kept is enough, and gives the same bits as a trajectory that keeps all.
  const auto own = hypergradient_at(oracle, s.x, s.start, s.options, *make_estimator(estimator, s.settings));
  EXPECT_TRUE(at::equal(own.hypergradient.value, found.value));
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryPair,
                         ::testing::Combine(::testing::ValuesIn(estimator_names()),
                                            ::testing::ValuesIn(problem_names())),
                         [](const auto& row) {
                           return test_name(std::get<0>(row.param) + "_on_" + std::get<1>(row.param));
                         });

class EveryOptimizer : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

// Everything at once: minibatches, a schedule, weight decay, momenta, and start and rate where they are
// learned.
TEST_P(EveryOptimizer, unrolled_estimators_are_the_derivative_of_the_steps_taken) {
  const auto& [optimizer, problem_name] = GetParam();
  UnsolvedSetting s(problem_name);
  s.options.optimizer = optimizer;
  s.options.schedule = {ScheduleKind::cosine, 20, 0.2};
  s.options.momentum = 0.6;
  if (optimizer == "adam")
    s.options.rate = 0.05;  // its steps are as long as the rate, whatever the problem's scale
  s.options.epsilon =
      1e-3;  // Adam is smooth on that scale: seven points of a difference must see one smooth piece
  s.settings.byte_budget *= 3;
  const WithWeightDecay problem(s.problem, 0.01);
  const int64_t inner_size = std::max<int64_t>(problem.inner_samples() / 2, 1);
  const int64_t outer_size = std::max<int64_t>(problem.outer_samples() / 2, 1);
  const InnerBatches batches = [&](int64_t t) {
    const auto step = static_cast<uint64_t>(t);
    return Batch{Random(step).permutation(problem.inner_samples()).narrow(0, 0, inner_size), step};
  };
  const Batch outer{Random(99).permutation(problem.outer_samples()).narrow(0, 0, outer_size)};
  Oracle oracle(problem);
  const Trajectory inner = run_all_kept(oracle, s.x, s.start, s.options, batches);

  const Tensor whole = graph_hypergradient(problem, s.x, inner, 0, true, outer);
  EXPECT_LT(relative_error(unrolled_reference(problem, s.x, s.start, s.options, batches, outer).value, whole),
            1e-13);
  for (const std::string& name : reverse_family()) {
    EXPECT_LT(relative_error(estimate_along(name, s.settings, oracle, s.x, inner, outer).value, whole), 1e-10)
        << name;
  }
  const Tensor truncated = graph_hypergradient(problem, s.x, inner, 7, false, outer);
  EXPECT_LT(
      relative_error(estimate_along("truncated", s.settings, oracle, s.x, inner, outer).value, truncated),
      1e-10);
  const Tensor one_step = graph_hypergradient(problem, s.x, inner, 11, false, outer);
  EXPECT_LT(relative_error(estimate_along("one-step", s.settings, oracle, s.x, inner, outer).value, one_step),
            1e-10);

  const auto objective = [&](const Tensor& x) {
    return unrolled_objective(problem, x, s.start, s.options, batches, outer);
  };
  for (const uint64_t seed : {1U, 2U}) {
    Tensor u = random_like(s.x, seed);
    u = u / u.norm();
    EXPECT_NEAR(number(whole.dot(u)), directional_difference(objective, s.x, u), 1e-8 * length(whole));
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryOptimizer,
                         ::testing::Combine(::testing::ValuesIn(inner_optimizer_names()),
                                            ::testing::ValuesIn(problem_names())),
                         [](const auto& row) {
                           return test_name(std::get<0>(row.param) + "_on_" + std::get<1>(row.param));
                         });

class EverySolved : public ::testing::TestWithParam<std::string> {
 protected:
  // The solution near the end of the default inner loop, by Newton's method.
  EverySolved() : s(GetParam()), oracle(s.problem) {
    s.options.steps = 100;
    const Trajectory inner =
        run_inner(oracle, s.x, s.start, {.options = s.options, .keep = {}, .batches = {}});
    reference = implicit_reference(oracle, s.x, inner.final.w);
    w = reference.inner.w;
  }
  UnsolvedSetting s;
  Oracle oracle;
  ImplicitReference reference;
  Tensor w;
};

TEST_P(EverySolved, the_reference_is_the_closed_form_and_the_difference_of_the_solved_objective) {
  ASSERT_TRUE(reference.value.defined()) << reference.why;
  if (const auto* ridge = dynamic_cast<const Ridge*>(&s.problem)) {
    EXPECT_LT(relative_error(reference.value, ridge->hypergradient(s.x)), 1e-10);
  } else if (const auto* quadratic = dynamic_cast<const Quadratic*>(&s.problem)) {
    EXPECT_LT(relative_error(reference.value, quadratic->hypergradient(s.x)), 1e-10);
  } else if (GetParam().rfind("toy", 0) == 0) {
    Tensor closed = 2 * s.x + 10 * (2 * s.x).sin();  // at w = x
    if (GetParam() == "toy-interfering") closed = closed + 10 * (s.x - vec({1, 0}));
    EXPECT_LT(relative_error(reference.value, closed), 1e-10);
  } else if (const auto* counter = dynamic_cast<const Counterexample*>(&s.problem)) {
    EXPECT_LT(relative_error(reference.value, 2 * s.x - counter->target()), 1e-10);
  }
  const auto solved_objective = [&](const Tensor& x) {
    const SolvedInner solved = solve_inner(oracle, x, w);
    EXPECT_TRUE(solved.solved);
    EXPECT_LT(solved.iterations, 15);  // Newton's method ends where rounding begins, and does not walk on
    return number(s.problem.outer_loss(solved.w, x, {}));
  };
  for (const uint64_t seed : {1U, 2U}) {
    Tensor u = random_like(s.x, seed);
    u = u / u.norm();
    EXPECT_NEAR(number(reference.value.dot(u)), directional_difference(solved_objective, s.x, u),
                1e-8 * length(reference.value));
  }
}

// With as many steps as unknowns the Krylov methods, the factorisation and the full-rank approximation are
// exact.
TEST_P(EverySolved, direct_and_krylov_estimators_are_the_implicit_reference) {
  ASSERT_TRUE(reference.value.defined()) << reference.why;
  const Trajectory here = standing_at(w, s.options.rate);
  EstimatorSettings settings;
  settings.terms = 3 * w.numel();  // rounding delays conjugate gradients on an ill-conditioned matrix
  for (const char* name : {"exact", "cg", "minres", "nystrom"}) {
    const Hypergradient found = estimate_along(name, settings, oracle, s.x, here);
    EXPECT_LT(relative_error(found.value, reference.value), 1e-9) << name;
    EXPECT_TRUE(found.status == Status::converged || found.status == Status::ok)
        << name << name_of(found.status);
  }
}

// The limits of the series and of the unrolled estimators that stand at the solution: as many terms as make
// (1 - rate mu)^K vanish. Networks are flat in places and their steps slow: the series are damped there, and
// the derivative of their steps is tested above.
TEST_P(EverySolved, series_and_unrolled_estimators_tend_to_the_implicit_reference) {
  ASSERT_TRUE(reference.value.defined()) << reference.why;
  const Tensor eigenvalues = std::get<0>(at::linalg_eigh(dense_at(s.problem, w, s.x).hessian));
  ASSERT_GT(number(eigenvalues.min()), 0);
  EstimatorSettings settings;
  settings.curvature.damping = s.named.convex ? 0 : 0.05 * number(eigenvalues.max());
  const double mu = number(eigenvalues.min()) + settings.curvature.damping;
  const double largest = number(eigenvalues.max()) + settings.curvature.damping;
  InnerLoop run;
  run.options = s.options;
  run.options.rate = 1 / largest;
  run.options.steps = static_cast<int64_t>(std::ceil(25 * largest / mu));
  settings.terms = settings.truncate = run.options.steps;
  settings.linear_rate = run.options.rate;
  std::vector<std::string> names = {"neumann", "fixed-point"};
  Trajectory inner = standing_at(w);
  if (s.named.convex) {
    for (int64_t t = 0; t < run.options.steps; ++t) run.keep.push_back(t);
    inner = continue_inner(oracle, s.x, inner.final, run);
    for (const char* name : {"reverse", "truncated", "general-backward", "general-forward"}) {
      names.emplace_back(name);
    }
  }
  const Tensor limit = implicit_reference(oracle, s.x, w, settings.curvature).value;
  for (const std::string& name : names) {
    const Tensor value = estimate_along(name, settings, oracle, s.x, inner).value;
    EXPECT_LT(relative_error(value, limit), 1e-9) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EverySolved, ::testing::ValuesIn(problem_names()),
                         [](const auto& row) { return test_name(row.param); });

}  // namespace
}  // namespace bilevel::test
