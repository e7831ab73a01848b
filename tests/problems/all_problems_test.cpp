// What must hold of every problem in the registry, whatever it is: derivatives agree with finite differences
// of the losses, batches are unbiased, dtypes agree, seeds rule.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "bilevel/core/autograd.h"
#include "bilevel/problems/registry.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

std::vector<std::string> names(bool without_data) {
  const std::set<std::string> formulas{"toy", "toy-interfering", "counterexample"};
  std::vector<std::string> result;
  for (const ProblemRow& row : problem_rows()) {
    if (without_data || !formulas.contains(row.name)) result.push_back(row.name);
  }
  return result;
}

std::string identifier(const ::testing::TestParamInfo<std::string>& row) {
  std::string name = row.param;
  for (char& letter : name) {
    if (letter == '-') letter = '_';
  }
  return name;
}

class EveryProblem : public ::testing::TestWithParam<std::string> {
 protected:
  EveryProblem()
      : named(make_problem(GetParam())),
        problem(*named.problem),
        point(generic_point(problem)),
        v(random_like(point.w, 21)),
        u(random_like(point.x, 22)) {}

  // The full set and one minibatch, where there is more than one example.
  std::vector<Batch> batches() const {
    std::vector<Batch> result{{}};
    if (problem.inner_samples() > 1) result.push_back(partition(problem.inner_samples(), 5)[0]);
    return result;
  }

  NamedProblem named;
  const Problem& problem;
  Point point;
  Tensor v, u;
};

class EveryProblemWithData : public EveryProblem {};

TEST_P(EveryProblem, HasFlatStartsOfItsDtype) {
  EXPECT_EQ(named.name, GetParam());
  for (const Tensor& start : {problem.initial_inner(3), problem.initial_outer(3)}) {
    EXPECT_EQ(start.dim(), 1);
    EXPECT_EQ(start.scalar_type(), at::kDouble);
  }
  EXPECT_GT(named.inner_steps, 0);
  EXPECT_GT(named.inner_rate, 0);
}

TEST_P(EveryProblem, InnerGradientIsTheDifferenceOfTheInnerLoss) {
  for (const Batch& batch : batches()) {
    const Tensor expected =
        difference([&](const Tensor& w) { return problem.inner_loss(w, point.x, batch); }, point.w, v);
    EXPECT_LT(relative_error(problem.inner_gradient(point.w, point.x, batch).dot(v), expected), 1e-7);
    EXPECT_LT(relative_error(problem.linearize(point.w, point.x, batch)->gradient().dot(v), expected), 1e-7);
  }
}

TEST_P(EveryProblem, OuterGradientsAreDifferencesOfTheOuterLoss) {
  std::vector<Batch> outer_batches{{}};
  if (problem.outer_samples() > 1) outer_batches.push_back(partition(problem.outer_samples(), 5)[1]);
  for (const Batch& batch : outer_batches) {
    const auto gradients = autograd::outer_gradients(problem, point.w, point.x, batch);
    const Tensor in_w =
        difference([&](const Tensor& w) { return problem.outer_loss(w, point.x, batch); }, point.w, v);
    const Tensor in_x =
        difference([&](const Tensor& x) { return problem.outer_loss(point.w, x, batch); }, point.x, u);
    EXPECT_LT(relative_error(gradients.w.dot(v), in_w), 1e-7);
    EXPECT_NEAR(value(gradients.x.dot(u)), value(in_x), 1e-7 * (1 + std::abs(value(in_x))));
  }
}

TEST_P(EveryProblem, SecondDerivativesAreDifferencesOfTheInnerGradient) {
  for (const Batch& batch : batches()) {
    const auto linear = problem.linearize(point.w, point.x, batch);
    const Tensor along_w =
        difference([&](const Tensor& w) { return problem.inner_gradient(w, point.x, batch); }, point.w, v);
    const Tensor along_x =
        difference([&](const Tensor& x) { return problem.inner_gradient(point.w, x, batch); }, point.x, u);
    EXPECT_LT(relative_error(linear->hessian(v), along_w), 1e-7);
    EXPECT_LT(relative_error(linear->cross_transposed(u), along_x), 1e-7);
  }
}

TEST_P(EveryProblem, LinearizationAgreesWithAutograd) {
  for (const Batch& batch : batches()) {
    const auto own = problem.linearize(point.w, point.x, batch);
    const auto reference = autograd::linearize(problem, point.w, point.x, batch);
    EXPECT_LT(relative_error(own->gradient(), reference->gradient()), 1e-12);
    EXPECT_LT(relative_error(own->hessian(v), reference->hessian(v)), 1e-12);
    EXPECT_LT(relative_error(own->cross(v), reference->cross(v)), 1e-12);
    EXPECT_LT(relative_error(own->cross_transposed(u), reference->cross_transposed(u)), 1e-12);
    const auto [hessian, cross] = own->hessian_and_cross(v);
    EXPECT_LT(relative_error(hessian, own->hessian(v)), 1e-14);
    EXPECT_LT(relative_error(cross, own->cross(v)), 1e-14);
    EXPECT_LT(relative_error(problem.inner_gradient(point.w, point.x, batch),
                             autograd::inner_gradient(problem, point.w, point.x, batch)),
              1e-12);
  }
}

TEST_P(EveryProblem, HessianIsSymmetricAndCrossProductsAreAdjoint) {
  const Tensor v2 = random_like(point.w, 23);
  for (const Batch& batch : batches()) {
    const auto linear = problem.linearize(point.w, point.x, batch);
    const double scale = value(linear->hessian(v).norm() * v2.norm());
    EXPECT_NEAR(value(v2.dot(linear->hessian(v))), value(v.dot(linear->hessian(v2))), 1e-13 * scale);
    const double cross_scale = value(linear->cross(v).norm() * u.norm());
    EXPECT_NEAR(value(u.dot(linear->cross(v))), value(v.dot(linear->cross_transposed(u))),
                1e-12 * cross_scale);
  }
}

TEST_P(EveryProblemWithData, BatchesOfAPartitionAverageToTheFullSet) {
  const int64_t parts = 5;
  ASSERT_EQ(problem.inner_samples() % parts, 0);
  Tensor gradient = at::zeros_like(point.w);
  Tensor hessian = at::zeros_like(point.w);
  Tensor cross = at::zeros_like(point.x);
  double loss = 0;
  for (const Batch& batch : partition(problem.inner_samples(), parts)) {
    const auto linear = problem.linearize(point.w, point.x, batch);
    loss += value(problem.inner_loss(point.w, point.x, batch)) / parts;
    gradient += problem.inner_gradient(point.w, point.x, batch) / parts;
    hessian += linear->hessian(v) / parts;
    cross += linear->cross(v) / parts;
  }
  const auto full = problem.linearize(point.w, point.x, {});
  EXPECT_LT(relative_error(loss, value(problem.inner_loss(point.w, point.x, {}))), 1e-12);
  EXPECT_LT(relative_error(gradient, full->gradient()), 1e-12);
  EXPECT_LT(relative_error(hessian, full->hessian(v)), 1e-12);
  EXPECT_LT(relative_error(cross, full->cross(v)), 1e-12);
  double outer = 0;
  ASSERT_EQ(problem.outer_samples() % parts, 0);
  for (const Batch& batch : partition(problem.outer_samples(), parts)) {
    outer += value(problem.outer_loss(point.w, point.x, batch)) / parts;
  }
  EXPECT_LT(relative_error(outer, value(problem.outer_loss(point.w, point.x, {}))), 1e-12);
}

TEST_P(EveryProblemWithData, BatchOfEveryExampleIsTheFullSet) {
  const Batch all{at::arange(problem.inner_samples()), 0};
  const Batch twice{at::cat({all.index, all.index}), 0};  // repetitions are legal: drawn with replacement
  for (const Batch& batch : {all, twice}) {
    EXPECT_LT(relative_error(problem.inner_gradient(point.w, point.x, batch),
                             problem.inner_gradient(point.w, point.x, {})),
              1e-12);
  }
}

TEST_P(EveryProblemWithData, BadBatchesAreRefused) {
  const auto integers = at::TensorOptions().dtype(at::kLong);
  for (const Tensor& index :
       {at::empty({0}, integers), at::tensor({-1L}), at::tensor({problem.inner_samples()}),
        at::zeros({2}, integers.dtype(at::kInt)), at::zeros({1, 1}, integers)}) {
    EXPECT_THROW(problem.inner_loss(point.w, point.x, {index, 0}), std::invalid_argument);
    EXPECT_THROW(problem.inner_gradient(point.w, point.x, {index, 0}), std::invalid_argument);
    EXPECT_THROW(problem.outer_loss(point.w, point.x, {index, 0}), std::invalid_argument);
  }
}

TEST_P(EveryProblem, FloatAgreesWithDouble) {
  const NamedProblem single = make_problem(GetParam(), {.tensors = floats()});
  const Tensor w = point.w.to(at::kFloat);
  const Tensor x = point.x.to(at::kFloat);
  ASSERT_EQ(single.problem->initial_inner(0).scalar_type(), at::kFloat);
  ASSERT_EQ(single.problem->initial_outer(0).scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(single.problem->initial_inner(4), problem.initial_inner(4)), 1e-6);
  EXPECT_LT(relative_error(single.problem->initial_outer(4), problem.initial_outer(4)), 1e-6);
  const auto linear = single.problem->linearize(w, x, {});
  const auto reference = problem.linearize(w.to(at::kDouble), x.to(at::kDouble), {});
  ASSERT_EQ(linear->gradient().scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(linear->gradient(), reference->gradient()), 2e-5);
  EXPECT_LT(relative_error(linear->hessian(v.to(at::kFloat)), reference->hessian(v)), 2e-5);
  EXPECT_LT(relative_error(linear->cross(v.to(at::kFloat)), reference->cross(v)), 2e-5);
  EXPECT_LT(relative_error(single.problem->outer_loss(w, x, {}), problem.outer_loss(point.w, point.x, {})),
            2e-5);
}

TEST_P(EveryProblem, SameSeedSameBits) {
  const NamedProblem again = make_problem(GetParam());
  EXPECT_TRUE(at::equal(again.problem->initial_inner(9), problem.initial_inner(9)));
  EXPECT_TRUE(at::equal(again.problem->initial_outer(9), problem.initial_outer(9)));
  EXPECT_TRUE(
      at::equal(again.problem->inner_loss(point.w, point.x, {}), problem.inner_loss(point.w, point.x, {})));
  EXPECT_TRUE(
      at::equal(again.problem->outer_loss(point.w, point.x, {}), problem.outer_loss(point.w, point.x, {})));
}

TEST_P(EveryProblemWithData, AnotherSeedIsOtherData) {
  const NamedProblem other = make_problem(GetParam(), {.seed = 1});
  EXPECT_NE(value(other.problem->inner_loss(point.w, point.x, {})),
            value(problem.inner_loss(point.w, point.x, {})));
  EXPECT_NE(value(other.problem->outer_loss(point.w, point.x, {})),
            value(problem.outer_loss(point.w, point.x, {})));
}

TEST_P(EveryProblem, EvaluatingChangesNothing) {
  const Tensor w = point.w.clone();
  const Tensor x = point.x.clone();
  const double before = value(problem.inner_loss(w, x, {}));
  for (const Batch& batch : batches()) {
    problem.inner_gradient(w, x, batch);
    problem.linearize(w, x, batch)->hessian(v);
  }
  problem.outer_loss(w, x, {});
  problem.metrics(w, x);
  EXPECT_TRUE(at::equal(w, point.w));
  EXPECT_TRUE(at::equal(x, point.x));
  EXPECT_EQ(value(problem.inner_loss(w, x, {})), before);
}

TEST_P(EveryProblem, AccuraciesArePercent) {
  for (const auto& [name, accuracy] : problem.metrics(point.w, point.x)) {
    if (name.find("percent") == std::string::npos) continue;
    EXPECT_GE(accuracy, 0) << name;
    EXPECT_LE(accuracy, 100) << name;
  }
}

// Where H and C are said to be constant they are, and where not they are not.
TEST_P(EveryProblem, ConstantCurvatureIsWhatItSays) {
  const auto here = problem.linearize(point.w, point.x, {});
  const auto there = problem.linearize(point.w + v, point.x, {});
  const double change =
      relative_error(there->hessian(v), here->hessian(v)) + relative_error(there->cross(v), here->cross(v));
  if (named.constant_curvature) {
    EXPECT_LT(change, 1e-12);
  } else {
    EXPECT_GT(change, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryProblem, ::testing::ValuesIn(names(true)), identifier);
INSTANTIATE_TEST_SUITE_P(Registry, EveryProblemWithData, ::testing::ValuesIn(names(false)), identifier);

}  // namespace
}  // namespace bilevel::testing
