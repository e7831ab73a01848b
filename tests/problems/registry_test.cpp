// The table of problems: its names, its refusals, and defaults that solve what is convex.
#include "bilevel/problems/registry.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Registry, KnowsTheProblemsOfThePapers) {
  std::vector<std::string> names;
  for (const ProblemRow& row : problem_rows()) {
    names.push_back(row.name);
    EXPECT_FALSE(row.summary.empty()) << row.name;
  }
  EXPECT_THAT(names, ::testing::ElementsAre("toy", "toy-interfering", "quadratic", "ridge",
                                            "softmax-regression", "hyper-cleaning", "task-interaction", "mlp",
                                            "learned-rate", "counterexample"));
}

TEST(Registry, AnUnknownNameListsTheKnownOnes) {
  EXPECT_THAT([] { make_problem("rigde"); },
              ThrowsMessage<std::invalid_argument>(
                  ::testing::AllOf(HasSubstr("rigde"), HasSubstr("ridge"), HasSubstr("hyper-cleaning"))));
}

TEST(Registry, RefusesOptionsThatWouldBeIgnored) {
  EXPECT_THAT([] { make_problem("ridge", {.regularization = 0.1}); },
              ThrowsMessage<std::invalid_argument>(
                  ::testing::AllOf(HasSubstr("ridge"), HasSubstr("regularization"))));
  EXPECT_THAT([] { make_problem("toy", {.bias = true}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("bias")));
  EXPECT_THAT([] { make_problem("mlp", {.valid_labels = "y.npy"}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("labels")));
}

TEST(Registry, RefusesDtypesAndRegularizationOutOfBounds) {
  EXPECT_THAT([] { make_problem("toy", {.tensors = at::TensorOptions().dtype(at::kLong)}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("Long")));
  EXPECT_THAT(
      [] { make_problem("hyper-cleaning", {.regularization = std::numeric_limits<double>::quiet_NaN()}); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("nan")));
  EXPECT_THAT(
      [] { make_problem("hyper-cleaning", {.regularization = std::numeric_limits<double>::infinity()}); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("inf")));
}

struct Solved {
  double gradient;  // |grad_w g| / (1 + |grad_w g at the start|)
  double rate_times_largest;
};

Solved solve(const NamedProblem& named) {
  const Problem& problem = *named.problem;
  const Tensor start = problem.initial_inner(0);
  const Tensor x = problem.initial_outer(0);
  const double first = value(problem.inner_gradient(start, x, {}).norm());
  const Tensor w = descend(problem, start, x, named.inner_steps, named.inner_rate);
  const Tensor spectrum = eigenvalues(dense_hessian(problem, w, x));
  EXPECT_GT(value(spectrum[0]), 0) << named.name;
  return {value(problem.inner_gradient(w, x, {}).norm()) / (1 + first),
          named.inner_rate * value(spectrum[-1])};
}

TEST(Registry, DefaultStepsSolveTheConvexInnerProblemsWithAnySeed) {
  for (const ProblemRow& row : problem_rows()) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const NamedProblem named = make_problem(row.name, {.seed = seed});
      if (!named.convex || row.name.starts_with("toy")) continue;  // the toy keeps the paper's 100 steps
      const Solved solved = solve(named);
      EXPECT_LT(solved.gradient, 1e-13) << row.name << " seed " << seed;
      EXPECT_LE(solved.rate_times_largest, 1)
          << row.name << " seed " << seed;  // where the papers' bounds hold
    }
  }
}

// A regulariser that the outer loop lets grow would otherwise lead to where the inner rate diverges.
TEST(Registry, DefaultRatesAreStableWhereverXMayGo) {
  for (const ProblemRow& row : problem_rows()) {
    for (const double decay : {0.0, 3.0}) {
      const NamedProblem named = make_problem(row.name, {.weight_decay = decay});
      if (!named.convex) continue;
      Tensor x = at::full_like(named.problem->initial_outer(0), 20);
      named.problem->project_outer_(x);
      const Tensor start = named.problem->initial_inner(0);
      for (const Tensor& w : {start, start + at::ones_like(start)}) {
        const double largest = value(eigenvalues(dense_hessian(*named.problem, w, x))[-1]);
        EXPECT_LT(named.inner_rate * largest, 2) << row.name << " decay " << decay;
      }
    }
  }
}

TEST(Registry, HyperCleaningIsSolvedWithABiasAndWithOtherRegularization) {
  for (const ProblemOptions& options : {ProblemOptions{.bias = true}, ProblemOptions{.regularization = 0.003},
                                        ProblemOptions{.regularization = 1}}) {
    const Solved solved = solve(make_problem("hyper-cleaning", options));
    EXPECT_LT(solved.gradient, 1e-13);
    EXPECT_LE(solved.rate_times_largest, 1);
  }
}

TEST(Registry, HyperCleaningWithoutRegularizationIsNotCalledConvex) {
  EXPECT_FALSE(make_problem("hyper-cleaning", {.regularization = 0}).convex);  // many solutions
  EXPECT_TRUE(make_problem("hyper-cleaning", {.regularization = 0.01}).convex);
}

TEST(Registry, TheNonConvexProblemsLearnAtTheirRatesWithoutOscillating) {
  for (const char* name : {"mlp", "learned-rate"}) {
    const NamedProblem named = make_problem(name);
    ASSERT_FALSE(named.convex);
    const Tensor x = named.problem->initial_outer(0);
    Tensor w = named.problem->initial_inner(0);
    const double first = value(named.problem->inner_loss(w, x, {}));
    double last = first;
    for (int i = 0; i < 1000; ++i) {
      w = descend(*named.problem, w, x, 1, named.inner_rate);
      const double loss = value(named.problem->inner_loss(w, x, {}));
      ASSERT_LE(loss, last + 1e-12) << name << " step " << i;
      last = loss;
    }
    EXPECT_LT(last, 0.5 * first) << name;
  }
}

TEST(Registry, TheNonConvexProblemsHaveNegativeCurvature) {
  for (const char* name : {"mlp", "learned-rate"}) {
    const NamedProblem named = make_problem(name);
    const Tensor x = named.problem->initial_outer(0);
    const Tensor w =
        descend(*named.problem, named.problem->initial_inner(0), x, named.inner_steps, named.inner_rate);
    EXPECT_LT(value(eigenvalues(dense_hessian(*named.problem, w, x))[0]), -1e-3) << name;
  }
}

}  // namespace
}  // namespace bilevel::testing
