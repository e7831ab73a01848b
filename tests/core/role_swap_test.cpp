// The swapped problem against differences of f in x, and its largest eigenvalue against the dense matrix.
#include "bilevel/core/role_swap.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bilevel/core/oracle.h"
#include "bilevel/core/spectrum.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

// A validation loss as in architecture search: curved in x, and mixed with w; the batch's seed scales it.
FunctionProblem searched() {
  return FunctionProblem([](const Tensor& w, const Tensor& x,
                            const Batch&) { return 0.5 * w.square().sum() + w.sum() * x.sin().sum(); },
                         [](const Tensor& w, const Tensor& x, const Batch& b) {
                           return (x.softmax(0) * w.narrow(0, 0, 4)).sum().exp() *
                                      (1.0 + static_cast<double>(b.seed)) +
                                  w.pow(3).sum();
                         },
                         random_vector(6, 1), random_vector(4, 2));
}

TEST(RoleSwap, its_hessian_is_the_second_difference_of_f_in_x) {
  const FunctionProblem problem = searched();
  const RoleSwap swapped(problem);
  Oracle oracle(swapped), plain(problem);
  const Tensor w = problem.initial_inner(0), x = problem.initial_outer(0), v = random_vector(4, 3);
  const Batch batch{{}, 2};
  const auto linear = oracle.linearize(x, w, batch);
  const auto df_dx = [&](const Tensor& at) { return plain.outer_gradients(w, at, batch).x; };
  const Tensor expected = (df_dx(x + 1e-5 * v) - df_dx(x - 1e-5 * v)) / 2e-5;
  EXPECT_LT(relative_error(linear->hessian(v), expected), 1e-8);
  EXPECT_LT(relative_error(linear->gradient(), df_dx(x)), 1e-14);
  EXPECT_LT(relative_error(oracle.inner_gradient(x, w, batch), df_dx(x)), 1e-14);
  const auto f = [&](const Tensor& at) { return number(problem.outer_loss(w, at, batch)); };
  EXPECT_LT(relative_error(df_dx(x), finite_differences(f, x)), 1e-7);
  // (d2f/dw dx) v, of w's size, and grad_w f.
  const auto df_dw = [&](const Tensor& at) { return plain.outer_gradients(w, at, batch).w; };
  EXPECT_LT(relative_error(linear->cross(v), (df_dw(x + 1e-5 * v) - df_dw(x - 1e-5 * v)) / 2e-5), 1e-8);
  EXPECT_LT(relative_error(oracle.inner_gradient_in_outer(x, w, batch), df_dw(x)), 1e-14);
  EXPECT_EQ(oracle.counts().hessian, 1);
}

TEST(RoleSwap, the_levels_change_places) {
  class Sized : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    int64_t inner_samples() const override { return 7; }
    int64_t outer_samples() const override { return 3; }
  };
  const FunctionProblem problem = searched();
  const Sized sized(problem);
  const RoleSwap swapped(sized);
  const Tensor w = problem.initial_inner(0), x = problem.initial_outer(0);
  EXPECT_TRUE(at::equal(swapped.initial_inner(0), x) && at::equal(swapped.initial_outer(0), w));
  EXPECT_EQ(swapped.inner_samples(), 3);
  EXPECT_EQ(swapped.outer_samples(), 7);
  EXPECT_TRUE(at::equal(swapped.inner_loss(x, w, {}), problem.outer_loss(w, x, {})));
  EXPECT_TRUE(at::equal(swapped.outer_loss(x, w, {}), problem.inner_loss(w, x, {})));
  const Dense d = dense_at(problem, w, x);
  EXPECT_LT(relative_error(swapped.outer_gradients(x, w, {}).x, d.gradient), 1e-14);
}

TEST(RoleSwap, its_products_give_the_largest_eigenvalue) {
  const FunctionProblem problem = searched();
  const RoleSwap swapped(problem);
  Oracle oracle(swapped);
  const Tensor w = problem.initial_inner(0), x = problem.initial_outer(0);
  const Tensor matrix = dense_at(swapped, x, w).hessian;
  const auto linear = oracle.linearize(x, w, {});
  std::vector<Tensor> columns;
  for (int64_t i = 0; i < 4; ++i) columns.push_back(linear->hessian(at::eye(4, doubles())[i]));
  EXPECT_LT(relative_error(at::stack(columns, 1), matrix), 1e-13);
  const Spectrum spectrum =
      extreme_eigenvalues([&](const Tensor& v) { return linear->hessian(v); }, 4, doubles());
  EXPECT_NEAR(spectrum.largest, number(at::linalg_eigvalsh(matrix).max()), 1e-12 * length(matrix));
}

TEST(RoleSwap, a_loss_without_x_says_so) {
  const FunctionProblem problem([](const Tensor& w, const Tensor& x, const Batch&) { return (w * x).sum(); },
                                [](const Tensor& w, const Tensor&, const Batch&) { return w.square().sum(); },
                                vec({1, 2}), vec({3, 4}));
  const RoleSwap swapped(problem);
  Oracle oracle(swapped);
  EXPECT_THAT(message([&] {
                oracle.linearize(vec({3, 4}), vec({1, 2}), {})->hessian(vec({1, 0}));
              }),
              ::testing::HasSubstr("does not depend on"));
}

}  // namespace
}  // namespace bilevel::test
