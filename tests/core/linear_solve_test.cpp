// What all linear solves share, and the direct solve against dense closed forms. The iterative methods have
// files of their own.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "tests/core/matrices.h"

namespace bilevel {
namespace {

using namespace matrices;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Status, EveryOneHasAName) {
  for (int i = 0; i <= static_cast<int>(Status::not_finite); ++i) {
    EXPECT_FALSE(name_of(static_cast<Status>(i)).empty());
  }
  EXPECT_EQ(name_of(Status::negative_curvature), "negative_curvature");
  EXPECT_THROW(name_of(static_cast<Status>(99)), std::invalid_argument);
}

TEST(LinearResult, BeginsPessimistic) {
  const LinearResult result;
  EXPECT_EQ(result.status, Status::not_run);
  EXPECT_EQ(result.residual(), -1);
  EXPECT_EQ(result.relative_residual, -1);
}

TEST(DirectSolve, SolvesAndSaysWhatKindOfMatrixItWas) {
  const Tensor b = random_vector(5, 3);
  const Tensor definite = with_eigenvalues({1, 2, 3, 4, 500}, 2);
  const Tensor indefinite = with_eigenvalues({-1, 2, 3, 4, 5}, 2);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double allowed = type == at::kDouble ? 1e-12 : 1e-4;
    const CountedProduct counted(definite.to(type));
    const LinearResult good = direct_solve(counted, b.to(type));
    EXPECT_EQ(good.status, Status::converged);
    EXPECT_EQ(*counted.calls, 5);
    EXPECT_EQ(good.products, 5);
    EXPECT_EQ(good.solution.scalar_type(), type);
    EXPECT_LT(relative_error(good.solution, solve(definite, b)), allowed);
    EXPECT_LT(good.relative_residual, allowed);
    const LinearResult saddle = direct_solve(product_with(indefinite.to(type)), b.to(type));
    EXPECT_EQ(saddle.status, Status::negative_curvature);
    EXPECT_LT(relative_error(saddle.solution, solve(indefinite, b)), allowed);
    EXPECT_LT(saddle.residual(), allowed * norm2(b));
  }
}

TEST(DirectSolve, SingularMatricesGetTheLeastSquaresSolutionOfSmallestNorm) {
  const Tensor b = random_vector(5, 3);
  for (const std::vector<double>& eigenvalues :
       {std::vector<double>{0, 2, 3, 4, 5}, std::vector<double>{-2, 0, 0, 4, 5}}) {
    const Tensor a = with_eigenvalues(eigenvalues, 2);
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      const LinearResult result = direct_solve(product_with(a.to(type)), b.to(type));
      EXPECT_EQ(result.status, Status::breakdown);
      const Tensor pseudo = at::mv(at::linalg_pinv(a, 1e-6, true), b);
      EXPECT_LT(relative_error(result.solution, pseudo), type == at::kDouble ? 1e-12 : 1e-5);
    }
  }
  const LinearResult zero = direct_solve([](const Tensor& v) { return at::zeros_like(v); }, b);
  EXPECT_EQ(zero.status, Status::breakdown);
  EXPECT_EQ(zero.relative_residual, 1);
}

TEST(DirectSolve, IllConditionedFloatIsNotCalledSingular) {
  const Tensor many = with_eigenvalues(at::logspace(-5, 0, 100, 10, at::kDouble), 2).to(at::kFloat);
  EXPECT_EQ(direct_solve(product_with(many), random_vector(100, 3, at::kFloat)).status, Status::converged);
  const Tensor two = with_eigenvalues({1e-5, 1}, 2).to(at::kFloat);
  EXPECT_EQ(direct_solve(product_with(two), random_vector(2, 3, at::kFloat)).status, Status::converged);
}

TEST(DirectSolve, DampingLimitNotFiniteAndScalars) {
  const Tensor a = with_eigenvalues({-1, 2, 3}, 2);
  const Tensor b = random_vector(3, 3);
  DirectOptions options;
  options.damping = 1.5;
  const LinearResult damped = direct_solve(product_with(a), b, options);
  EXPECT_EQ(damped.status, Status::converged);
  EXPECT_LT(relative_error(damped.solution, solve(a + 1.5 * at::eye(3, a.options()), b)), 1e-12);

  EXPECT_EQ(direct_solve([](const Tensor& v) { return v * not_a_number; }, b).status, Status::not_finite);
  EXPECT_EQ(direct_solve([](const Tensor& v) { return v; }, b * infinity).status, Status::not_finite);
  EXPECT_LT(relative_error(direct_solve([](const Tensor& v) { return v; }, b).solution, b), 1e-15);
  const LinearResult scalar = direct_solve([](const Tensor& v) { return 4 * v; }, vector_of({8}));
  EXPECT_DOUBLE_EQ(scalar.solution[0].item<double>(), 2);
  EXPECT_EQ(direct_solve(product_with(a), at::zeros({3}, at::kDouble)).relative_residual, 0);

  options.limit = 2;
  EXPECT_THAT([&] { direct_solve(product_with(a), b, options); },
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("3 unknowns"), HasSubstr("limit = 2"))));
}

TEST(Assemble, IsTheMatrixSymmetrised) {
  const Tensor a = Random(3).normal({4, 4}, at::kDouble);
  EXPECT_LT(norm2((assemble(product_with(a), 4, a.options()) - (a + a.t()) / 2).view({-1})), 1e-15);
  EXPECT_TRUE(assemble([](const Tensor& v) { return v; }, 3, at::kFloat).equal(at::eye(3, at::kFloat)));
  EXPECT_THROW(assemble(product_with(a), 0, a.options()), std::invalid_argument);
  EXPECT_THROW(assemble(product_with(a), 4, at::kLong), std::invalid_argument);
}

TEST(LinearSolve, FollowsTheDevice) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU here";
  const Tensor a = with_eigenvalues(at::linspace(0.5, 2, 100, at::kDouble), 2);
  const Tensor b = random_vector(100, 3);
  const Tensor exact = solve(a, b);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double allowed = type == at::kDouble ? 1e-9 : 1e-4;
    const MatrixProduct matrix = product_with(a.to(at::kCUDA, type));
    const IndexedProduct indexed = [&](const Tensor& v, int64_t) { return matrix(v); };
    const Tensor right = b.to(at::kCUDA, type);
    const auto check = [&](const LinearResult& result) {
      EXPECT_TRUE(result.solution.is_cuda());
      EXPECT_LT(relative_error(result.solution.cpu(), exact), allowed);
    };
    check(conjugate_gradient(matrix, right, {50, 0, 0, {}}));
    check(minres(matrix, right, {50, 0, 0, {}}));
    check(neumann_series(indexed, right, {200, 0.6}));
    check(fixed_point(indexed, right, {200, 0.6, 0, {}}));
    check(direct_solve(matrix, right));
  }
}

TEST(LinearSolve, MisuseNamesTheOptionItsValueAndTheBound) {
  const Tensor b = random_vector(4, 5);
  const IndexedProduct identity = [](const Tensor& v, int64_t) { return v; };
  const MatrixProduct plain = [](const Tensor& v) { return v; };
  const auto expect = [](auto call, const std::string& text) {
    EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  expect(
      [&] {
        minres(plain, b, KrylovSolveOptions{-3, 0, 0, {}});
      },
      "max_iterations = -3: must be at least 0");
  expect(
      [&] {
        minres(plain, b, KrylovSolveOptions{3, infinity, 0, {}});
      },
      "relative_tolerance = inf: must be finite");
  KrylovSolveOptions wrong;
  wrong.warm_start = at::zeros({5}, at::kDouble);
  expect([&] { minres(plain, b, wrong); }, "warm_start is [5]");
  wrong = {};
  wrong.damping = not_a_number;
  expect([&] { minres(plain, b, wrong); }, "damping = nan");
  expect([&] { neumann_series(identity, b, {-1, 0.1}); }, "terms = -1: must be at least 0");
  expect([&] { neumann_series(identity, b, {1, 0.0}); }, "rate = 0: must be finite and above 0");
  expect([&] { neumann_series(identity, b, {1, not_a_number}); }, "rate = nan");
  expect([&] { neumann_series(identity, b.view({2, 2}), {1, 0.1}); }, "shape [2, 2]");
  expect([&] { fixed_point(identity, b, FixedPointOptions{-1, 0.1, 0, {}}); }, "steps = -1");
  expect([&] { fixed_point(identity, b, FixedPointOptions{1, -0.1, 0, {}}); }, "rate = -0.1");
  expect([&] { fixed_point(identity, b, FixedPointOptions{1, 0.1, -1, {}}); }, "relative_tolerance = -1");
  expect(
      [&] {
        fixed_point(identity, b, FixedPointOptions{1, 0.1, 0, at::zeros({2})});
      },
      "warm_start is [2]");
  expect([&] { direct_solve(plain, b.to(at::kHalf)); }, "Half must be Float or Double");
  DirectOptions direct;
  direct.damping = -1;
  expect([&] { direct_solve(plain, b, direct); }, "damping = -1");
  direct = {};
  direct.limit = 0;
  expect([&] { direct_solve(plain, b, direct); }, "limit = 0");
}

}  // namespace
}  // namespace bilevel
