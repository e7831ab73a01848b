// Eigenvalues with a guarantee: never on the wrong side of exact ones, and close to them.
#include "bilevel/core/enclosure.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bilevel/core/rounding.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

// Q diag(values) Q' with Q the reflection I - 2 vv'/v'v of whole numbers whose squares sum to a power of two:
// every entry is a small multiple of a power of two, so that the matrix has exactly these eigenvalues.
Tensor with_eigenvalues(const Tensor& values) {
  const Tensor v = at::ones({values.numel()}, doubles());  // 4, 16 or 64 entries
  const Tensor reflection = at::eye(values.numel(), doubles()) - 2 * at::outer(v, v) / v.dot(v);
  return reflection.mm(at::diag(values)).mm(reflection);
}

TEST(Enclosure, exact_eigenvalues_lie_within_and_are_nearly_met) {
  for (const int64_t n : {4, 16, 64}) {
    for (const double smallest : {1.0, 0.0, -3.0, 1.0 / 1048576}) {
      Tensor values = at::arange(1, n + 1, doubles());
      values[0] = smallest;
      const Tensor a = with_eigenvalues(values);
      const double below = smallest_eigenvalue_below(a), above = largest_eigenvalue_above(a);
      EXPECT_LE(below, smallest) << n;
      EXPECT_GE(below, smallest - 1e-14 * static_cast<double>(n * n * n)) << n;
      EXPECT_GE(above, static_cast<double>(n)) << n;
      EXPECT_LE(above, static_cast<double>(n) * (1 + 1e-14 * static_cast<double>(n * n))) << n;
    }
  }
}

// LAPACK's own values are on either side of the exact ones: that is why they are not used as they come.
TEST(Enclosure, what_LAPACK_returns_is_not_always_on_the_safe_side) {
  int wrong_side = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Tensor values = (8 * Random(seed).uniform({16}, doubles())).floor() + 2;
    values[3] = 1;
    const Tensor a = with_eigenvalues(values);
    wrong_side += number(at::linalg_eigvalsh(a).min()) > 1 ? 1 : 0;
    EXPECT_LE(smallest_eigenvalue_below(a), 1) << seed;
    EXPECT_GE(smallest_eigenvalue_below(a), 1 - 1e-11) << seed;
  }
  EXPECT_GT(wrong_side, 0);
}

TEST(Enclosure, a_norm_is_bounded_from_above_for_tall_and_wide_matrices) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{200, 7}, {7, 200}, {1, 1}, {30, 30}}) {
    const Tensor a = Random(7).normal({rows, columns}, doubles());
    const double truth = number(at::linalg_svdvals(a).max());
    const double bound = std::sqrt(squared_norm_above(a));
    EXPECT_GE(bound, truth * (1 - 1e-15));
    EXPECT_LE(bound, truth * (1 + 1e-9));
  }
  EXPECT_LT(squared_norm_above(at::zeros({3, 4}, doubles())), 1e-150);
}

TEST(Enclosure, numbers_that_are_not_finite_have_no_bound) {
  Tensor a = at::eye(3, doubles());
  a[1][1] = NAN;
  EXPECT_EQ(smallest_eigenvalue_below(a), -INFINITY);
  EXPECT_EQ(largest_eigenvalue_above(a), INFINITY);
}

TEST(Rounding, gamma_is_that_of_the_books) {
  const double epsilon = std::numeric_limits<double>::epsilon(), unit = epsilon / 2;
  EXPECT_GE(accumulated(10, epsilon), 10 * unit / (1 - 10 * unit));
  EXPECT_LE(accumulated(10, epsilon), 10.0001 * unit);
  const double single = static_cast<double>(std::numeric_limits<float>::epsilon());
  EXPECT_EQ(accumulated(int64_t{1} << 30, single), INFINITY);  // nothing is known of so long a sum in float
  EXPECT_GE(norm_above(vec({3, 4})), 5);
  EXPECT_LE(norm_above(vec({3, 4})), 5 + 1e-13);
}

}  // namespace
}  // namespace bilevel::test
