// Conjugate gradients on blocks against the core's on each block.
#include "bilevel/meta/block_cg.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "bilevel/core/random.h"
#include "tests/meta/small_tasks.h"

namespace bilevel::meta {
namespace {

constexpr int64_t blocks = 4, size = 6;

Tensor positive_blocks() {
  const Tensor a = Random(1).normal({blocks, size, size}, at::kDouble);
  return at::bmm(a, a.transpose(1, 2)) + 0.1 * at::eye(size, at::kDouble);
}

MatrixProduct product_with(const Tensor& a) {
  return [a](const Tensor& v) { return at::bmm(a, v.view({a.size(0), size, 1})).flatten(); };
}

KrylovSolveOptions steps_to(int64_t steps, double tolerance = 0) {
  KrylovSolveOptions options;
  options.max_iterations = steps;
  options.relative_tolerance = tolerance;
  return options;
}

TEST(BlockCg, each_block_gets_what_it_gets_alone) {
  const Tensor a = positive_blocks();
  Tensor b = Random(2).normal({blocks, size}, at::kDouble);
  b = b * at::tensor({1e-3, 1.0, 1e3, 0.0}, at::kDouble).unsqueeze(1);  // one has nothing to solve
  for (const int64_t steps : {0, 1, 3, 50}) {
    for (const double tolerance : {0.0, 1e-4}) {
      const KrylovSolveOptions options = steps_to(steps, tolerance);
      const LinearResult together = block_conjugate_gradient(product_with(a), b.flatten(), blocks, options);
      int64_t slowest = 0;
      for (int64_t i = 0; i < blocks; ++i) {
        const LinearResult alone =
            conjugate_gradient([&](const Tensor& v) { return a[i].mv(v); }, b[i], options);
        slowest = std::max(slowest, alone.iterations);
        EXPECT_LT(relative_distance(together.solution.view({blocks, size})[i], alone.solution), 1e-9)
            << "block " << i << ", " << steps << " steps, tolerance " << tolerance;
      }
      // Where nothing but rounding is left, rounding decides which step is the last.
      if (steps < 50 || tolerance > 0) {
        EXPECT_EQ(together.iterations, slowest);
      }
      EXPECT_EQ(together.status, steps == 50 ? Status::converged : Status::max_iterations);
    }
  }
}

TEST(BlockCg, one_bad_block_is_reported_and_leaves_the_others_alone) {
  Tensor a = positive_blocks();
  const Tensor b = Random(2).normal({blocks * size}, at::kDouble);
  const Tensor good = block_conjugate_gradient(product_with(a), b, blocks, steps_to(50)).solution;
  a = a.clone();
  a[1] = -a[1];
  const LinearResult result = block_conjugate_gradient(product_with(a), b, blocks, steps_to(50));
  EXPECT_EQ(result.status, Status::negative_curvature);
  EXPECT_EQ(result.relative_residual, 1);
  EXPECT_TRUE(result.solution.view({blocks, size})[1].eq(0).all().item<bool>());
  for (const int64_t i : {0, 2, 3}) {
    EXPECT_LT(relative_distance(result.solution.view({blocks, size})[i], good.view({blocks, size})[i]),
              1e-12);
  }
  a[1].fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(block_conjugate_gradient(product_with(a), b, blocks, steps_to(50)).status, Status::not_finite);
}

TEST(BlockCg, a_singular_block_without_a_solution_is_said) {
  Tensor a = positive_blocks().clone();
  a[2].zero_();
  a[2][0][0] = 1;
  const Tensor b = at::ones({blocks * size}, at::kDouble);
  EXPECT_EQ(block_conjugate_gradient(product_with(a), b, blocks, steps_to(50)).status, Status::breakdown);
}

TEST(BlockCg, blocks_must_divide_the_vector) {
  EXPECT_THROW(block_conjugate_gradient(product_with(positive_blocks()), at::ones({7}, at::kDouble), 2),
               std::invalid_argument);
}

}  // namespace
}  // namespace bilevel::meta
