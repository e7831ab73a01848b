// Automatic differentiation of a user's losses, against closed forms and finite differences, and what it says
// when a loss is not what it should be.
#include "bilevel/core/autograd.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "bilevel/core/errors.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Loss = FunctionProblem::Loss;

// g = exp(x0) |w|^2 / 2 + x1 w0 w1^2 + sin(w2 x0), whose derivatives are written out below.
Tensor inner(const Tensor& w, const Tensor& x, const Batch& /*batch*/) {
  return 0.5 * x[0].exp() * w.dot(w) + x[1] * w[0] * w[1] * w[1] + (w[2] * x[0]).sin();
}
// f = w0^2 w1 + w2 x1
Tensor outer(const Tensor& w, const Tensor& x, const Batch& /*batch*/) {
  return w[0] * w[0] * w[1] + w[2] * x[1];
}

FunctionProblem problem_of(Loss g, Loss f = outer) {
  return {std::move(g), std::move(f), vec({1, 2, 3}), vec({1, 1})};
}

class Autograd : public ::testing::Test {
 protected:
  const FunctionProblem problem = problem_of(inner);
  const Tensor w = vec({0.7, -1.1, 0.4});
  const Tensor x = vec({0.3, -0.8});
  const double w0 = 0.7, w1 = -1.1, w2 = 0.4, x0 = 0.3, x1 = -0.8, e = std::exp(0.3);
  const double cosine = std::cos(w2 * x0), sine = std::sin(w2 * x0);
};

TEST_F(Autograd, first_derivatives_are_the_closed_forms) {
  const Tensor in_w = vec({e * w0 + x1 * w1 * w1, e * w1 + 2 * x1 * w0 * w1, e * w2 + x0 * cosine});
  EXPECT_LT(relative_error(autograd::inner_gradient(problem, w, x, {}), in_w), 1e-15);
  EXPECT_LT(relative_error(autograd::linearize(problem, w, x, {})->gradient(), in_w), 1e-15);
  const Tensor in_x = vec({0.5 * e * (w0 * w0 + w1 * w1 + w2 * w2) + w2 * cosine, w0 * w1 * w1});
  EXPECT_LT(relative_error(autograd::inner_gradient_in_outer(problem, w, x, {}), in_x), 1e-15);
  const auto f = autograd::outer_gradients(problem, w, x, {});
  EXPECT_DOUBLE_EQ(number(f.loss), w0 * w0 * w1 + w2 * x1);
  EXPECT_LT(relative_error(f.w, vec({2 * w0 * w1, w0 * w0, x1})), 1e-15);
  EXPECT_LT(relative_error(f.x, vec({0, w2})), 1e-15);
}

TEST_F(Autograd, second_derivatives_are_the_closed_forms) {
  const Tensor hessian = at::stack(
      {vec({e, 2 * x1 * w1, 0}), vec({2 * x1 * w1, e + 2 * x1 * w0, 0}), vec({0, 0, e - x0 * x0 * sine})});
  const Tensor cross =
      at::stack({vec({e * w0, e * w1, e * w2 + cosine - w2 * x0 * sine}), vec({w1 * w1, 2 * w0 * w1, 0})});
  const auto linear = autograd::linearize(problem, w, x, {});
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Tensor v = random_vector(3, seed), u = random_vector(2, seed + 10);
    EXPECT_LT(relative_error(linear->hessian(v), hessian.mv(v)), 1e-14);
    EXPECT_LT(relative_error(linear->cross(v), cross.mv(v)), 1e-14);
    EXPECT_LT(relative_error(linear->cross_transposed(u), cross.t().mv(u)), 1e-14);
    const auto [h, c] = linear->hessian_and_cross(v);
    EXPECT_TRUE(at::equal(h, linear->hessian(v)));
    EXPECT_TRUE(at::equal(c, linear->cross(v)));
  }
}

// Results carry no graph, inputs are not written to, and a caller's no-grad mode changes nothing.
TEST_F(Autograd, leaves_no_trace_and_works_without_grad_mode) {
  const Tensor w_kept = w.clone(), x_kept = x.clone();
  const Tensor expected = autograd::linearize(problem, w, x, {})->hessian(w);
  const at::AutoGradMode disable(false);
  const auto linear = autograd::linearize(problem, w.clone().requires_grad_(true), x, {});
  for (const Tensor& result :
       {linear->gradient(), linear->hessian(w), linear->cross(w), linear->cross_transposed(x),
        autograd::inner_gradient(problem, w, x, {}), autograd::inner_gradient_in_outer(problem, w, x, {}),
        autograd::outer_gradients(problem, w, x, {}).loss, autograd::outer_gradients(problem, w, x, {}).w}) {
    EXPECT_FALSE(result.requires_grad());
  }
  EXPECT_TRUE(at::equal(linear->hessian(w), expected));
  EXPECT_TRUE(at::equal(w, w_kept) && at::equal(x, x_kept));
  EXPECT_FALSE(w.requires_grad());
}

TEST_F(Autograd, a_derivative_that_is_zero_is_zeros_where_the_loss_has_the_variable) {
  // Linear in w: H = 0. Separable: C = 0. Neither is a mistake.
  const auto linear =
      problem_of([](const Tensor& v, const Tensor& u, const Batch&) { return v.sum() + u.dot(u); });
  const auto separable =
      problem_of([](const Tensor& v, const Tensor& u, const Batch&) { return v.dot(v) + u.dot(u); });
  for (const FunctionProblem* p : {&linear, &separable}) {
    const auto at_point = autograd::linearize(*p, w, x, {});
    EXPECT_TRUE(at::equal(at_point->cross(w), vec({0, 0})));
    EXPECT_TRUE(at::equal(at_point->cross_transposed(x), vec({0, 0, 0})));
    EXPECT_TRUE(at::equal(at_point->hessian_and_cross(w).second, vec({0, 0})));
  }
  EXPECT_TRUE(at::equal(autograd::linearize(linear, w, x, {})->hessian(w), vec({0, 0, 0})));
  EXPECT_TRUE(at::equal(autograd::linearize(separable, w, x, {})->hessian(w), 2 * w));
  const auto without_x =
      problem_of(inner, [](const Tensor& v, const Tensor&, const Batch&) { return v.dot(v); });
  EXPECT_TRUE(at::equal(autograd::outer_gradients(without_x, w, x, {}).x, vec({0, 0})));
}

TEST_F(Autograd, a_loss_that_lost_w_or_x_is_an_error) {
  const Loss no_w = [](const Tensor& v, const Tensor& u, const Batch&) {
    return v.detach().dot(v.detach()) * u.sum();
  };
  const Loss no_x = [](const Tensor& v, const Tensor& u, const Batch&) {
    return v.dot(v) * u.detach().sum();
  };
  const Loss neither = [](const Tensor& v, const Tensor&, const Batch&) { return v.detach().sum(); };
  const auto names_w = ThrowsMessage<std::invalid_argument>(HasSubstr("inner_loss does not depend on w"));
  const auto names_x = ThrowsMessage<std::invalid_argument>(HasSubstr("inner_loss does not depend on x"));
  for (const Loss& g : {no_w, neither}) {
    const auto p = problem_of(g);
    EXPECT_THAT([&] { autograd::inner_gradient(p, w, x, {}); }, names_w);
    EXPECT_THAT([&] { autograd::linearize(p, w, x, {})->hessian(w); }, names_w);
  }
  const auto p = problem_of(no_x);
  EXPECT_THAT([&] { autograd::linearize(p, w, x, {})->cross(w); }, names_x);
  EXPECT_THAT([&] { autograd::linearize(p, w, x, {})->cross_transposed(x); }, names_x);
  EXPECT_THAT([&] { autograd::linearize(p, w, x, {})->hessian_and_cross(w); }, names_x);
  EXPECT_THAT([&] { autograd::inner_gradient_in_outer(p, w, x, {}); }, names_x);
  for (const Loss& f : {no_w, neither}) {
    EXPECT_THAT([&] { autograd::outer_gradients(problem_of(inner, f), w, x, {}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("outer_loss does not depend on w")));
  }
}

// The same loss without x is right where the problem says that it is meant.
TEST_F(Autograd, a_loss_without_x_is_zeros_where_the_problem_says_so) {
  class StartOnly : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    bool inner_loss_uses_outer() const override { return false; }
    std::unique_ptr<Linearization> linearize(const Tensor& v, const Tensor& u,
                                             const Batch& b) const override {
      return autograd::linearize(*this, v, u, b);
    }
  };
  const auto base = problem_of([](const Tensor& v, const Tensor&, const Batch&) { return v.dot(v); });
  const StartOnly p(base);
  const auto linear = p.linearize(w, x, {});
  EXPECT_TRUE(at::equal(linear->cross(w), vec({0, 0})));
  EXPECT_TRUE(at::equal(linear->cross_transposed(x), vec({0, 0, 0})));
  EXPECT_TRUE(at::equal(linear->hessian_and_cross(w).first, 2 * w));
  EXPECT_TRUE(at::equal(autograd::inner_gradient_in_outer(p, w, x, {}), vec({0, 0})));
}

TEST_F(Autograd, a_loss_that_is_no_finite_scalar_of_its_dtype_is_an_error) {
  const auto expect = [&](const Loss& bad, const auto& matcher) {
    EXPECT_THAT([&] { autograd::inner_gradient(problem_of(bad), w, x, {}); }, matcher);
    EXPECT_THAT([&] { autograd::linearize(problem_of(bad), w, x, {}); }, matcher);
    EXPECT_THAT([&] { autograd::outer_gradients(problem_of(inner, bad), w, x, {}); }, matcher);
  };
  expect([](const Tensor& v, const Tensor& u, const Batch&) { return v * u.sum(); },
         ThrowsMessage<std::invalid_argument>(HasSubstr("a tensor of 3 elements")));
  expect([](const Tensor&, const Tensor&, const Batch&) { return Tensor(); },
         ThrowsMessage<std::invalid_argument>(HasSubstr("undefined")));
  expect([](const Tensor& v, const Tensor& u, const Batch&) { return (v.dot(v) * u.sum()).to(at::kFloat); },
         ThrowsMessage<std::invalid_argument>(HasSubstr("returned Float, but w is Double")));
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    expect([bad](const Tensor& v, const Tensor& u, const Batch&) { return bad * v.dot(v) * u.dot(u); },
           ThrowsMessage<NotFiniteError>(HasSubstr("_loss returned ")));
  }
}

// A loss of one element in one dimension is a scalar all the same.
TEST_F(Autograd, a_loss_of_shape_one_is_a_scalar) {
  const auto p = problem_of(
      [](const Tensor& v, const Tensor& u, const Batch& b) { return inner(v, u, b).reshape({1}); });
  EXPECT_TRUE(at::equal(autograd::inner_gradient(p, w, x, {}), autograd::inner_gradient(problem, w, x, {})));
  EXPECT_TRUE(at::equal(autograd::linearize(p, w, x, {})->hessian(w),
                        autograd::linearize(problem, w, x, {})->hessian(w)));
}

// outputs = A tanh(w), loss = |outputs - y|^2 / 2 + sum outputs^4, regulariser exp(x0) |w|^2 / 2.
class PartsProblem : public ForwardingProblem {
 public:
  explicit PartsProblem(const Problem& base, bool detached = false)
      : ForwardingProblem(base), detached_(detached) {}
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return autograd::linearize(*this, w, x, b);
  }
  std::optional<InnerParts> inner_parts(const Tensor& w, const Tensor& x, const Batch&) const override {
    const Tensor outputs = matrix.mv((detached_ ? w.detach() : w).tanh());
    return InnerParts{outputs, [](const Tensor& o) { return 0.5 * (o - 1).square().sum() + o.pow(4).sum(); },
                      0.5 * x[0].exp() * w.dot(w)};
  }
  const Tensor matrix = Random(3).normal({4, 3}, doubles());

 private:
  bool detached_;
};

TEST_F(Autograd, gauss_newton_is_the_dense_formula) {
  const PartsProblem p(problem);
  const Tensor outputs = p.matrix.mv(w.tanh());
  const Tensor jacobian = p.matrix * (1 - w.tanh().square());
  const Tensor loss_hessian = at::diag(1 + 12 * outputs.square());
  const Tensor expected = jacobian.t().mm(loss_hessian).mm(jacobian) + e * at::eye(3, doubles());
  const auto linear = p.linearize(w, x, {});
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Tensor v = random_vector(3, seed);
    EXPECT_LT(relative_error(linear->gauss_newton(v), expected.mv(v)), 1e-14);
  }
}

TEST_F(Autograd, gauss_newton_without_usable_parts_is_an_error) {
  EXPECT_THAT([&] { autograd::linearize(problem, w, x, {})->gauss_newton(w); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("inner_parts")));
  EXPECT_THAT([&] { PartsProblem(problem, true).linearize(w, x, {})->gauss_newton(w); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("outputs does not depend on w")));
}

TEST_F(Autograd, jacobian_products_are_the_closed_forms) {
  const autograd::TensorFunction function = [](const Tensor& y) {
    return at::stack({y[0] * y[1], y[1].sin(), y[0] * y[0]});
  };
  const Tensor jacobian = at::stack({vec({x1, x0}), vec({0, std::cos(x1)}), vec({2 * x0, 0})});
  const Tensor u = random_vector(2, 1), a = random_vector(3, 2);
  EXPECT_LT(relative_error(autograd::jacobian_vector(function, x, u), jacobian.mv(u)), 1e-15);
  EXPECT_LT(relative_error(autograd::vector_jacobian(function, x, a), jacobian.t().mv(a)), 1e-15);
  const autograd::TensorFunction constant = [](const Tensor&) { return vec({1, 2, 3}); };
  EXPECT_TRUE(at::equal(autograd::jacobian_vector(constant, x, u), vec({0, 0, 0})));
  EXPECT_TRUE(at::equal(autograd::vector_jacobian(constant, x, a), vec({0, 0})));
  const autograd::TensorFunction identity = [](const Tensor& y) { return y; };
  EXPECT_TRUE(at::equal(autograd::jacobian_vector(identity, x, u), u));
  EXPECT_TRUE(at::equal(autograd::vector_jacobian(identity, x, u), u));
}

}  // namespace
}  // namespace bilevel::test
