#include "bilevel/hypergradients/random_signs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bilevel/hypergradients/registry.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

// Lengths around the words and blocks that the rows are read by.
class Signs : public testing::TestWithParam<int64_t> {};

TEST_P(Signs, products_are_those_of_the_written_rows) {
  const int64_t n = GetParam(), rank = 5;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const detail::RandomSigns signs(rank, n, 3);
    const Tensor y = Random(4).normal({rank, n}, at::TensorOptions(type)), q = at::empty_like(y);
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < rank; ++i) {
      Tensor row = q[i];
      signs.write(i, row);
      rows.push_back(y[i]);
    }
    EXPECT_TRUE(q.abs().eq(1).all().item<bool>());
    EXPECT_LT(q.mean().abs().item<double>(),
              5 / std::sqrt(static_cast<double>(rank * n)));  // five deviations
    const double rounding = type == at::kFloat ? 1e-5 : 1e-13;
    const Tensor exact_q = q.to(at::kDouble), exact_y = y.to(at::kDouble);
    const auto found = signs.products(rows);
    EXPECT_LT(relative_error(found.signs_rows, exact_q.mm(exact_y.t())), rounding);
    EXPECT_LT(relative_error(found.rows_rows, exact_y.mm(exact_y.t())), rounding);
    const Tensor p = Random(5).normal({n}, at::TensorOptions(type));
    EXPECT_LT(relative_error(detail::rows_times(rows, p), exact_y.mv(p.to(at::kDouble))), rounding);
    const Tensor c = Random(6).normal({rank}, doubles());
    Tensor sum = p.clone();
    detail::add_rows_(sum, rows, c);
    EXPECT_LT(relative_error(sum.to(at::kDouble), p.to(at::kDouble) + exact_y.t().mv(c)), rounding);
  }
}
INSTANTIATE_TEST_SUITE_P(Lengths, Signs, testing::Values(1, 63, 64, 65, 1023, 1024, 1025, 5000));

// H = B'B of rank 3 among 1500 unknowns, where the directions are signs: with damping, five of them find all
// there is.
TEST(NystromOnManyUnknowns, is_exact_on_low_rank_plus_damping) {
  const int64_t n = 1500;
  const Tensor b = Random(1).normal({3, n}, doubles());
  const FunctionProblem low_rank(
      [b](const Tensor& v, const Tensor& u, const Batch&) { return 0.5 * (b.mv(v) - u).square().sum(); },
      [](const Tensor& v, const Tensor&, const Batch&) { return v.dot(v) + v.sum(); }, random_vector(n, 2),
      vec({1, 2, 3}));
  Oracle oracle(low_rank);
  const Tensor start = low_rank.initial_inner(0), u = low_rank.initial_outer(0);
  const Tensor p = 2 * start + 1;
  EstimatorSettings settings;
  settings.curvature.damping = 0.2;
  settings.terms = 5;
  const Hypergradient found = estimate_along("nystrom", settings, oracle, u, standing_at(start));
  const Tensor v = solve(b.t().mm(b) + 0.2 * at::eye(n, doubles()), p);
  EXPECT_LT(relative_error(found.solution, v), 1e-11);
  // d2g/dx dw = -B; almost all of v lies where B is zero, so that the rounding is that of |B| |v|.
  EXPECT_LT((found.value - b.mv(v)).norm().item<double>(), 1e-13 * (b.norm() * v.norm()).item<double>());
}

}  // namespace
}  // namespace bilevel::test
