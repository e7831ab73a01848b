// STABLE by its formulas on the very samples, with dense derivatives, and what it refuses.
#include "bilevel/algorithms/stable.h"

#include <gmock/gmock.h>

#include "tests/algorithms/sampled.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double rate = 2e-3, averaging = 0.3;

StableOptions small() {
  StableOptions options;
  options.inner_rate = sampled_rate;
  options.averaging = averaging;
  options.outer.rate = rate;
  return options;
}

TEST(Stable, is_its_formulas_line_by_line) {
  const Stable stable(small());
  SampledRun run(stable);
  Tensor hessian, cross, x_before, w_before;
  for (int iteration = 0; iteration < 5; ++iteration) {
    run.step();
    const auto& calls = run.calls();
    const Tensor &x = run.before.x, &w = run.before.inner.w;
    const Batch& sample = calls.hessian.at(0);
    const Dense now = run.at(w, x, sample, calls.outer_gradient.at(0));
    if (iteration == 0) {
      EXPECT_EQ(calls.hessian.size(), 3U);
      hessian = now.hessian;
      cross = now.cross;
    } else {
      EXPECT_EQ(calls.hessian.size(), 6U);
      EXPECT_EQ(sample.seed, calls.hessian.at(5).seed);  // one sample for both points
      const Dense before = run.at(w_before, x_before, sample);
      hessian = now.hessian + (1 - averaging) * (hessian - before.hessian);
      cross = now.cross + (1 - averaging) * (cross - before.cross);
    }
    const Tensor direction = now.direct - cross.mv(solve(hessian, now.p));
    const Tensor next = x - rate * direction;
    const Tensor w_next = w - sampled_rate * run.at(w, x, calls.inner_gradient.at(0)).gradient -
                          solve(hessian, cross.t().mv(next - x));
    EXPECT_LT(relative_error(run.state.x, next), 1e-10) << iteration;
    EXPECT_LT(relative_error(run.state.inner.w, w_next), 1e-10) << iteration;
    x_before = x;
    w_before = w;
  }
}

// On full sets w stays at w*(x) to first order: with the correction its distance from there is of the square
// of x's step.
TEST(Stable, w_follows_the_solution_as_x_moves) {
  const Quadratic problem({.dimension = 3, .samples = 12, .seed = 11});
  const auto distance = [&](double outer_rate) {
    StableOptions options = small();
    options.outer.rate = outer_rate;
    const Stable stable(options);
    Oracle oracle(problem);
    Streams streams(1, 12, 12);
    const Tensor x = vec({0.3, -0.2, 0.5});
    AlgorithmState state = stable.init(oracle, x, problem.solution(x));
    stable.step(oracle, state, streams);
    return length(state.inner.w - problem.solution(state.x));
  };
  EXPECT_LT(distance(1e-2), 1e-12);  // w* is linear in x there
}

TEST(Stable, raises_eigenvalues_to_the_bound_that_is_given) {
  StableOptions options = small();
  options.strong_convexity = 1e6;  // far above H: H^-1 becomes I / 1e6
  const Stable stable(options);
  SampledRun run(stable);
  run.step();
  const Dense at = run.at(run.before.inner.w, run.before.x, {}, run.calls().outer_gradient.at(0));
  EXPECT_LT(relative_error(run.state.v, at.p / 1e6), 1e-10);
}

// Where a small batch's H has eigenvalues below the bound, the momentum goes on from the raised ones.
TEST(Stable, goes_on_from_the_projected_matrix) {
  StableOptions options = small();
  const Quadratic problem({.dimension = 3, .samples = 12, .seed = 11});
  const Tensor full = 2 * problem.inner_matrix().t().mm(problem.inner_matrix());
  const double bound = at::linalg_eigvalsh(full)[1].item<double>();  // above one of them at least
  options.strong_convexity = bound;
  const auto projected_by_hand = [bound](const Tensor& matrix) {
    const auto [values, vectors] = at::linalg_eigh(matrix);
    return vectors.mm(at::diag(at::maximum(values, at::full_like(values, bound)))).mm(vectors.t());
  };
  const Stable stable(options);
  SampledRun run(stable);
  Tensor hessian, x_before, w_before;
  for (int iteration = 0; iteration < 5; ++iteration) {
    run.step();
    const Tensor &x = run.before.x, &w = run.before.inner.w;
    const Batch& sample = run.calls().hessian.at(0);
    const Dense now = run.at(w, x, sample, run.calls().outer_gradient.at(0));
    Tensor next = now.hessian;
    if (iteration > 0) {
      next = next + (1 - averaging) * (hessian - run.at(w_before, x_before, sample).hessian);
    }
    hessian = projected_by_hand(next);
    EXPECT_GT(relative_error(hessian, next), 1e-3) << iteration;  // or nothing is tested
    EXPECT_LT(relative_error(run.state.v, solve(hessian, now.p)), 1e-10) << iteration;
    x_before = x;
    w_before = w;
  }
}

TEST(Stable, misuse_and_a_large_inner_problem_are_refused) {
  StableOptions options = small();
  options.averaging = 0;
  EXPECT_THAT(message([&] { Stable{options}; }), HasSubstr("stable: averaging"));
  const Quadratic problem({.dimension = 3, .samples = 12, .seed = 11});
  const Oracle oracle(problem);
  const Tensor many = at::zeros({2001}, at::kDouble);
  EXPECT_THAT(message([&] { Stable(small()).init(oracle, many, many); }),
              AllOf(HasSubstr("2001 entries"), HasSubstr("at most 2000"), HasSubstr("soba")));
}

}  // namespace
}  // namespace bilevel::test
