// Every derivative is counted once, by a double that counts its own calls; bad input is said in the user's
// words.
#include "bilevel/core/oracle.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "bilevel/problems/learned_rate.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/ridge.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Batch seven() { return {at::arange(7), 3}; }

void expect_same_counts(const Oracle& oracle, const CountingProblem& problem) {
  const auto& calls = problem.calls();
  EXPECT_EQ(oracle.counts().inner_gradient, static_cast<int64_t>(calls.inner_gradient.size()));
  EXPECT_EQ(oracle.counts().outer_gradient, static_cast<int64_t>(calls.outer_gradient.size()));
  EXPECT_EQ(oracle.counts().hessian, static_cast<int64_t>(calls.hessian.size()));
  EXPECT_EQ(oracle.counts().cross, static_cast<int64_t>(calls.cross.size()));
  EXPECT_EQ(oracle.counts().samples, calls.samples);
}

TEST(Oracle, counts_what_the_double_counts) {
  const Mlp mlp;
  CountingProblem problem(mlp);
  Oracle oracle(problem);
  const Tensor w = mlp.initial_inner(0), x = mlp.initial_outer(0);
  oracle.inner_gradient(w, x, {});
  oracle.inner_gradient(w, x, seven());
  oracle.inner_gradient_in_outer(w, x, seven());
  oracle.outer_gradients(w, x, seven());
  oracle.outer_gradient_in_outer(w, x, seven());
  expect_same_counts(oracle, problem);
  const auto linear = oracle.linearize(w, x, seven());  // not counted itself
  expect_same_counts(oracle, problem);
  linear->gradient();
  linear->hessian(w);
  linear->hessian(w);
  linear->cross(w);
  linear->cross_transposed(x);
  linear->hessian_and_cross(w);
  linear->gauss_newton(w);
  expect_same_counts(oracle, problem);
  EXPECT_EQ(oracle.counts().inner_gradient, 4);
  EXPECT_EQ(oracle.counts().outer_gradient, 2);
  EXPECT_EQ(oracle.counts().hessian, 4);
  EXPECT_EQ(oracle.counts().cross, 3);
  EXPECT_EQ(oracle.counts().samples, 40 + 7 * (2 + 1 + 2 + 4 + 3));
  EXPECT_GT(oracle.counts().seconds, 0);
}

TEST(Oracle, values_alone_and_learned_parts_are_not_counted) {
  const LearnedRate problem;
  Oracle oracle(problem);
  const Tensor w = problem.initial_inner(0), x = problem.initial_outer(0);
  oracle.inner_loss(w, x);
  oracle.outer_loss(w, x, seven());
  oracle.inner_rate(x);
  oracle.start_pullback(x, w);
  oracle.rate_tangent(x, x);
  const OracleCounts none;
  EXPECT_EQ(oracle.counts().samples, none.samples);
  EXPECT_EQ(oracle.counts().inner_gradient + oracle.counts().outer_gradient, 0);
  EXPECT_EQ(oracle.counts().hessian + oracle.counts().cross, 0);
}

TEST(Oracle, counts_add_and_subtract_field_by_field) {
  const OracleCounts a{1, 2, 3, 4, 5, 0.5};
  OracleCounts sum{10, 20, 30, 40, 50, 1.5};
  sum += a;
  const OracleCounts back = sum - a;
  EXPECT_EQ(sum.inner_gradient, 11);
  EXPECT_EQ(sum.outer_gradient, 22);
  EXPECT_EQ(sum.hessian, 33);
  EXPECT_EQ(sum.cross, 44);
  EXPECT_EQ(sum.samples, 55);
  EXPECT_EQ(sum.seconds, 2.0);
  EXPECT_EQ(back.inner_gradient, 10);
  EXPECT_EQ(back.outer_gradient, 20);
  EXPECT_EQ(back.hessian, 30);
  EXPECT_EQ(back.cross, 40);
  EXPECT_EQ(back.samples, 50);
  EXPECT_EQ(back.seconds, 1.5);
}

TEST(Oracle, hands_on_the_numbers_of_the_problem) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor w = random_vector(20, 1), x = ridge.initial_outer(0), v = random_vector(20, 2);
  const Dense dense = dense_at(ridge, w, x, seven());
  const auto linear = oracle.linearize(w, x, seven());
  EXPECT_LT(relative_error(oracle.inner_gradient(w, x, seven()), dense.gradient), 1e-14);
  EXPECT_LT(relative_error(linear->gradient(), dense.gradient), 1e-14);
  EXPECT_LT(relative_error(linear->hessian(v), dense.hessian.mv(v)), 1e-14);
  EXPECT_LT(relative_error(linear->cross(v), dense.cross.mv(v)), 1e-14);
  EXPECT_LT(relative_error(linear->cross_transposed(v), dense.cross.t().mv(v)), 1e-14);
  EXPECT_LT(relative_error(oracle.outer_gradients(w, x, {}).w, dense.p), 1e-14);
  EXPECT_DOUBLE_EQ(number(oracle.outer_gradients(w, x, {}).loss), number(oracle.outer_loss(w, x)));
}

// A caller's x may be a leaf of a graph of its own. A closed form would carry that graph along all T steps.
TEST(Oracle, carries_no_graph_of_the_callers) {
  class ClosedForms : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    Tensor inner_gradient_in_outer(const Tensor& w, const Tensor& x, const Batch&) const override {
      return w * x;
    }
    OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch&) const override {
      return {w.dot(x), x * 1, w * 1};
    }
  };
  const Ridge ridge;
  const ClosedForms closed(ridge);
  Oracle oracle(closed);
  const Tensor w = random_vector(20, 1).requires_grad_(true);
  const Tensor x = ridge.initial_outer(0).requires_grad_(true);
  const Tensor v = random_vector(20, 2);
  const auto linear = oracle.linearize(w, x, {});
  for (const Tensor& result :
       {oracle.inner_gradient(w, x, {}), linear->gradient(), linear->hessian(v), linear->cross(v),
        linear->cross_transposed(v), oracle.inner_gradient_in_outer(w, x, {}),
        oracle.outer_gradients(w, x, {}).loss, oracle.outer_gradients(w, x, {}).w,
        oracle.outer_gradients(w, x, {}).x, oracle.outer_gradient_in_outer(w, x, {}).x,
        oracle.inner_loss(w, x), oracle.outer_loss(w, x)}) {
    EXPECT_FALSE(result.requires_grad());
  }
}

TEST(Oracle, refuses_points_that_are_no_flat_vectors_of_one_dtype_and_device) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor w = ridge.initial_inner(0), x = ridge.initial_outer(0);
  const auto expect = [&](const Tensor& bad_w, const Tensor& bad_x, const auto& what) {
    const auto matcher = ThrowsMessage<std::invalid_argument>(what);
    EXPECT_THAT([&] { oracle.inner_gradient(bad_w, bad_x, {}); }, matcher);
    EXPECT_THAT([&] { oracle.inner_gradient_in_outer(bad_w, bad_x, {}); }, matcher);
    EXPECT_THAT([&] { oracle.outer_gradients(bad_w, bad_x, {}); }, matcher);
    EXPECT_THAT([&] { oracle.outer_gradient_in_outer(bad_w, bad_x, {}); }, matcher);
    EXPECT_THAT([&] { oracle.linearize(bad_w, bad_x, {}); }, matcher);
    EXPECT_THAT([&] { oracle.inner_loss(bad_w, bad_x); }, matcher);
    EXPECT_THAT([&] { oracle.outer_loss(bad_w, bad_x); }, matcher);
  };
  expect(Tensor(), x, HasSubstr("w is an undefined tensor"));
  expect(w, Tensor(), HasSubstr("x is an undefined tensor"));
  expect(w.reshape({4, 5}), x, AllOf(HasSubstr("w must be a flat"), HasSubstr("2 dimensions")));
  expect(w, x[0], AllOf(HasSubstr("x must be a flat"), HasSubstr("0 dimensions")));
  expect(at::empty({0}, doubles()), x, HasSubstr("non-empty"));
  expect(w.to(at::kLong), x, HasSubstr("w must be float or double, but is Long"));
  expect(w, x.to(at::kHalf), HasSubstr("x must be float or double, but is Half"));
  expect(w.to(at::kFloat), x, AllOf(HasSubstr("w is Float"), HasSubstr("x is Double")));
  expect(w, at::empty({20}, doubles().device(at::kMeta)), HasSubstr("but x is Double on meta"));
}

TEST(Oracle, refuses_bad_batches) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor w = ridge.initial_inner(0), x = ridge.initial_outer(0);
  const auto expect = [&](const Tensor& index, const char* what) {
    const auto matcher = ThrowsMessage<std::invalid_argument>(HasSubstr(what));
    EXPECT_THAT([&] { oracle.inner_gradient(w, x, {index}); }, matcher);
    EXPECT_THAT([&] { oracle.outer_gradients(w, x, {index}); }, matcher);
    EXPECT_THAT([&] { oracle.linearize(w, x, {index}); }, matcher);
  };
  expect(at::empty({0}, at::kLong), "the batch is empty");
  expect(at::zeros({2, 1}, at::kLong), "2-dimensional");
  expect(at::zeros({2}, at::kInt), "Int");
}

TEST(Oracle, refuses_vectors_of_the_wrong_shape_or_dtype) {
  const Ridge ridge({.features = 6});
  Oracle oracle(ridge);
  const auto linear = oracle.linearize(ridge.initial_inner(0), ridge.initial_outer(0), {});
  for (const Tensor& bad :
       {Tensor(), vec({1, 2}), random_vector(6, 1).reshape({2, 3}), random_vector(6, 1).to(at::kFloat)}) {
    EXPECT_THROW(linear->hessian(bad), std::invalid_argument);
    EXPECT_THROW(linear->cross(bad), std::invalid_argument);
    EXPECT_THROW(linear->cross_transposed(bad), std::invalid_argument);
    EXPECT_THROW(linear->hessian_and_cross(bad), std::invalid_argument);
    EXPECT_THROW(linear->gauss_newton(bad), std::invalid_argument);
  }
}

// A closed form that a user got wrong: it returns one fixed tensor for everything.
class WrongForms : public ForwardingProblem {
 public:
  WrongForms(const Problem& base, Tensor answer, bool wrong_in_x = false)
      : ForwardingProblem(base), answer_(std::move(answer)), wrong_in_x_(wrong_in_x) {}
  Tensor inner_gradient(const Tensor&, const Tensor&, const Batch&) const override { return answer_; }
  std::unique_ptr<Linearization> linearize(const Tensor&, const Tensor&, const Batch&) const override {
    return std::make_unique<Wrong>(answer_);
  }
  Tensor inner_gradient_in_outer(const Tensor&, const Tensor&, const Batch&) const override {
    return answer_;
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& b) const override {
    OuterGradients right = base_.outer_gradients(w, x, b);
    (wrong_in_x_ ? right.x : right.w) = answer_;
    return right;
  }

 private:
  struct Wrong : Linearization {
    explicit Wrong(Tensor a) : answer(std::move(a)) {}
    Tensor gradient() override { return answer; }
    Tensor hessian(const Tensor&) override { return answer; }
    Tensor cross(const Tensor&) override { return answer; }
    Tensor cross_transposed(const Tensor&) override { return answer; }
    Tensor gauss_newton(const Tensor&) override { return answer; }
    Tensor answer;
  };
  Tensor answer_;
  bool wrong_in_x_;
};

TEST(Oracle, a_closed_form_of_the_wrong_shape_is_named) {
  const FunctionProblem base(
      [](const Tensor& w, const Tensor& x, const Batch&) { return w.dot(w) * x.sum(); },
      [](const Tensor& w, const Tensor&, const Batch&) { return w.dot(w); }, vec({1, 2, 3}), vec({1, 1}));
  const Tensor w = base.initial_inner(0), x = base.initial_outer(0);
  for (const Tensor& answer :
       {vec({1, 2, 3, 4}), vec({1, 2, 3}).to(at::kFloat), w.reshape({3, 1}), Tensor()}) {
    const WrongForms problem(base, answer);
    Oracle oracle(problem);
    const auto linear = oracle.linearize(w, x, {});
    const auto names = [](const char* what) { return ThrowsMessage<std::invalid_argument>(HasSubstr(what)); };
    EXPECT_THAT([&] { oracle.inner_gradient(w, x, {}); },
                names("Problem::inner_gradient must return 3 elements"));
    EXPECT_THAT([&] { oracle.inner_gradient_in_outer(w, x, {}); },
                names("Problem::inner_gradient_in_outer must return 2"));
    EXPECT_THAT([&] { oracle.outer_gradients(w, x, {}); }, names("df/dw, must return 3"));
    const WrongForms wrong_in_x(base, answer, true);
    EXPECT_THAT([&] { Oracle(wrong_in_x).outer_gradients(w, x, {}); }, names("df/dx, must return 2"));
    EXPECT_THAT([&] { Oracle(wrong_in_x).outer_gradient_in_outer(w, x, {}); },
                names("Problem::outer_gradient_in_outer must return 2"));
    EXPECT_THAT([&] { linear->gradient(); }, names("Linearization::gradient must return 3"));
    EXPECT_THAT([&] { linear->hessian(w); }, names("Linearization::hessian must return 3"));
    EXPECT_THAT([&] { linear->cross(w); }, names("Linearization::cross must return 2"));
    EXPECT_THAT([&] { linear->cross_transposed(x); }, names("Linearization::cross_transposed must return 3"));
    EXPECT_THAT([&] { linear->hessian_and_cross(w); },
                names("Linearization::hessian_and_cross must return 3"));
    EXPECT_THAT([&] { linear->gauss_newton(w); }, names("Linearization::gauss_newton must return 3"));
  }
}

TEST(Oracle, a_problem_without_gauss_newton_says_so) {
  const Ridge ridge;
  Oracle oracle(ridge);
  const Tensor w = ridge.initial_inner(0);
  EXPECT_THAT([&] { oracle.linearize(w, ridge.initial_outer(0), {})->gauss_newton(w); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("gauss-newton")));
}

TEST(Oracle, a_rate_per_tensor_becomes_one_per_variable) {
  const LearnedRate problem;
  const Oracle oracle(problem);
  const Tensor x = problem.initial_outer(0).clone();
  x[0] = std::log(0.2);
  x[1] = std::log(0.7);
  const Tensor rate = oracle.inner_rate(x);
  EXPECT_LT(relative_error(rate, at::cat({at::full({20}, 0.2, doubles()), at::full({15}, 0.7, doubles())})),
            1e-15);
  // Products with the Jacobians of start and rate, which are known: the identity on a part of x, and the
  // rates.
  const Tensor u = random_like(x, 1), a = random_vector(35, 2);
  EXPECT_TRUE(at::equal(oracle.start_tangent(x, u), u.narrow(0, 2, 35)));
  EXPECT_TRUE(at::equal(oracle.start_pullback(x, a).narrow(0, 2, 35), a));
  EXPECT_LT(
      relative_error(oracle.rate_tangent(x, u), at::cat({u[0].expand({20}) * 0.2, u[1].expand({15}) * 0.7})),
      1e-15);
  const Tensor pulled = oracle.rate_pullback(x, a);
  EXPECT_LT(relative_error(pulled.narrow(0, 0, 2),
                           at::stack({0.2 * a.narrow(0, 0, 20).sum(), 0.7 * a.narrow(0, 20, 15).sum()})),
            1e-14);
  EXPECT_EQ(length(pulled.narrow(0, 2, x.numel() - 2)), 0);
}

TEST(Oracle, refuses_rates_that_are_not_positive_numbers_or_too_many) {
  class WithRate : public ForwardingProblem {
   public:
    WithRate(const Problem& base, Tensor rate) : ForwardingProblem(base), rate_(std::move(rate)) {}
    Tensor inner_rate(const Tensor&) const override { return rate_; }

   private:
    Tensor rate_;
  };
  const Mlp mlp;  // four weight tensors
  const Tensor x = mlp.initial_outer(0);
  EXPECT_EQ(Oracle(WithRate(mlp, vec({1, 2, 3, 4}))).inner_rate(x).numel(), 136);
  EXPECT_EQ(Oracle(WithRate(mlp, vec({0.5}))).inner_rate(x).numel(), 1);
  EXPECT_THAT(
      [&] {
        Oracle(WithRate(mlp, vec({1, 2, 3}))).inner_rate(x);
      },
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("3 rates"), HasSubstr("4 entries"))));
  EXPECT_THROW(Oracle(WithRate(Ridge(), vec({1, 2, 3}))).inner_rate(x), std::invalid_argument);
  for (const double bad :
       {0.0, -0.1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT([&] { Oracle(WithRate(mlp, vec({bad}))).inner_rate(x); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("a rate must be finite and above 0")));
  }
}

TEST(Problem, a_function_problem_checks_what_it_is_given) {
  const FunctionProblem::Loss loss = [](const Tensor& w, const Tensor& x, const Batch&) { return w.dot(x); };
  EXPECT_THROW(FunctionProblem({}, loss, vec({1}), vec({1})), std::invalid_argument);
  EXPECT_THROW(FunctionProblem(loss, {}, vec({1}), vec({1})), std::invalid_argument);
  EXPECT_THAT(
      [&] { FunctionProblem(loss, loss, Tensor(), vec({1})); },
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("initial_inner"), HasSubstr("undefined"))));
  EXPECT_THAT(
      [&] {
        FunctionProblem(loss, loss, vec({1}), at::zeros({2, 2}));
      },
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("initial_outer"), HasSubstr("2-dimensional"))));
  // A start is a value: what a caller does to it reaches nobody else.
  const FunctionProblem problem(loss, loss, vec({1, 2}), vec({3, 4}));
  problem.initial_inner(0).fill_(7);
  EXPECT_TRUE(at::equal(problem.initial_inner(0), vec({1, 2})));
  EXPECT_TRUE(at::equal(problem.initial_outer(0), vec({3, 4})));
  EXPECT_EQ(problem.inner_samples(), 1);
  EXPECT_FALSE(problem.inner_start(vec({1})).defined() || problem.inner_rate(vec({1})).defined());
  EXPECT_FALSE(problem.inner_parts(vec({1}), vec({1}), {}).has_value());
}

}  // namespace
}  // namespace bilevel::test
