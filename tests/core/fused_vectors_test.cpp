#include "bilevel/core/fused_vectors.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "bilevel/core/linear_solve.h"
#include "bilevel/core/random.h"

namespace bilevel::testing {
namespace {

using namespace detail;

struct Vectors {
  Tensor a, b, c, d;
  Vectors(int64_t size, at::ScalarType dtype) {
    Random random(3);
    for (Tensor* t : {&a, &b, &c, &d}) *t = random.normal({size}, at::kDouble).to(dtype);
  }
};

double inner_product(const Tensor& a, const Tensor& b) {
  return a.to(at::kDouble).dot(b.to(at::kDouble)).item<double>();
}

class FusedVectors : public ::testing::TestWithParam<std::tuple<int64_t, at::ScalarType>> {
 protected:
  int64_t size() const { return std::get<0>(GetParam()); }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
  double near() const { return dtype() == at::kDouble ? 1e-12 : 1e-4; }  // of sums of up to 70,000 squares
  void expect_near(double found, double wanted, double scale) const {
    EXPECT_NEAR(found, wanted, near() * (scale + 1));
  }
  void expect_near(const Tensor& found, const Tensor& wanted) const {
    EXPECT_LT((found.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>(),
              dtype() == at::kDouble ? 1e-14 : 4e-6);
  }
};

TEST_P(FusedVectors, ConjugateGradients) {
  for (const double damping : {0.0, 0.3}) {
    Vectors v(size(), dtype());
    const Tensor q = v.b + damping * v.a;
    expect_near(damped_dot(v.a, v.b, damping), inner_product(v.a, q), inner_product(v.a, v.a));
    const Tensor r = v.c - 0.7 * q;
    expect_near(subtract_damped(v.c, 0.7, v.b, v.a, damping), inner_product(r, r), inner_product(r, r));
    expect_near(v.c, r);
    const Tensor x = v.d + 0.2 * v.a, d = v.c + 0.4 * v.a;
    step_and_turn(v.d, 0.2, v.a, v.c, 0.4);
    expect_near(v.d, x);
    expect_near(v.a, d);
  }
}

TEST_P(FusedVectors, SeriesAndFixedPoint) {
  Vectors v(size(), dtype());
  const Tensor term = v.a - 0.3 * v.b, sum = v.c + term;
  const double curvature = inner_product(v.a, v.b);
  const auto of_term = next_term(v.a, v.b, 0.3, v.c);
  expect_near(of_term[0], curvature, inner_product(v.b, v.b));
  expect_near(of_term[1], inner_product(term, term), inner_product(term, term));
  expect_near(v.a, term);
  expect_near(v.c, sum);

  Vectors f(size(), dtype());
  const Tensor r = f.a - f.b, moved = f.c + 0.3 * r;
  const double before = inner_product(f.c, f.b), square = inner_product(f.c, f.c);
  const auto of_iterate = next_iterate(f.a, f.b, 0.3, f.c, f.d);
  expect_near(of_iterate[0], before, square);
  expect_near(of_iterate[1], square, square);
  expect_near(of_iterate[2], inner_product(r, r), inner_product(r, r));
  expect_near(f.d, r);
  expect_near(f.c, moved);
}

TEST_P(FusedVectors, Minres) {
  Vectors v(size(), dtype());
  const Tensor next = v.a - 0.6 * v.b;
  expect_near(lanczos_product(v.a, 0.6, v.c, v.b), inner_product(v.c, next), inner_product(v.c, v.c));
  expect_near(v.b, next);
  const Tensor rest = v.b - 0.8 * v.c;
  expect_near(subtract_scaled(v.b, 0.8, v.c), inner_product(rest, rest), inner_product(rest, rest));
  expect_near(v.b, rest);
  const Tensor w = 0.1 * v.a + 0.2 * v.b + 0.5 * v.c, x = v.d + 0.9 * w;
  turn_and_step(v.a, 0.1, v.b, 0.2, v.c, 0.5, v.d, 0.9);
  expect_near(v.a, w);
  expect_near(v.d, x);
}

TEST_P(FusedVectors, TheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<double> dots;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    Vectors v(size(), dtype());
    dots.push_back(damped_dot(v.a, v.b, 0.1) + subtract_damped(v.c, 0.7, v.b, v.a, 0.1));
  }
  at::set_num_threads(threads);
  EXPECT_EQ(dots[0], dots[1]);
  EXPECT_EQ(dots[0], dots[2]);
}

INSTANTIATE_TEST_SUITE_P(All, FusedVectors,
                         ::testing::Combine(::testing::Values(1, 7, 2048, 2049, 70001),
                                            ::testing::Values(at::kFloat, at::kDouble)));

TEST(FusedVectorsFor, ContiguousVectorsOfOneTypeOnly) {
  const Tensor a = at::ones({8}, at::kFloat), same = a.clone(), wide = a.to(at::kDouble);
  const Tensor strided = at::ones({16}, at::kFloat).slice(0, 0, 16, 2), longer = at::ones({9}, at::kFloat);
  EXPECT_TRUE(fusible({a, same}));
  EXPECT_FALSE(fusible({a, strided}));
  EXPECT_FALSE(fusible({a, wide}));
  EXPECT_FALSE(fusible({a, longer}));
}

// A product may be contiguous at one step and not at the next: the solvers change between their two ways.
TEST(FusedVectorsFor, SolversTakeAnyProduct) {
  Random random(5);
  const Tensor root = random.normal({12, 12}, at::kDouble);
  const Tensor matrix = root.mm(root.t()) + 0.5 * at::eye(12, at::kDouble),
               b = random.normal({12}, at::kDouble);
  const Tensor damped = matrix + 0.25 * at::eye(12, at::kDouble);
  const Tensor solution = at::linalg_solve(damped, b);
  for (const bool first : {true, false}) {
    int products = 0;
    const auto product = [&](const Tensor& v) {
      const Tensor result = matrix.mv(v);
      if ((products++ % 2 == 0) == first) return result;
      return at::stack({result, result}, 1).select(1, 0);  // every other number of its memory
    };
    for (const Tensor& start : {Tensor(), at::ones({12}, at::kDouble)}) {
      const KrylovSolveOptions options{
          .max_iterations = 40, .relative_tolerance = 1e-12, .damping = 0.25, .warm_start = start};
      for (const auto& result : {conjugate_gradient(product, b, options), minres(product, b, options)}) {
        EXPECT_EQ(result.status, Status::converged);
        EXPECT_LT(((result.solution - solution).norm() / solution.norm()).item<double>(), 1e-10);
      }
    }
  }
}

}  // namespace
}  // namespace bilevel::testing
