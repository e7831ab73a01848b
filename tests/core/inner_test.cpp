// Each inner optimiser: its step against recursions written by hand and PyTorch's numbers, the adjoint of the
// step against automatic differentiation through it, its tangent against its adjoint, and its largest safe
// rate.
#include "bilevel/core/inner.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "bilevel/hypergradients/forward.h"
#include "bilevel/hypergradients/reverse.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

InnerOptions options_of(const std::string& name) {
  InnerOptions options;
  options.optimizer = name;
  options.momentum = 0.8;
  options.beta1 = 0.8;
  options.beta2 = 0.95;
  options.epsilon = 1e-6;
  return options;
}

class EveryInner : public ::testing::TestWithParam<std::string> {
 protected:
  const InnerOptions options = options_of(GetParam());
  const std::unique_ptr<InnerOptimizer> optimizer = make_inner_optimizer(options);
};

TEST_P(EveryInner, steps_are_the_recursion_written_by_hand) {
  const double rate = 0.07, beta = 0.8, beta1 = 0.8, beta2 = 0.95, epsilon = 1e-6;
  double w = 0.4, m = 0, v = 0;
  InnerState state = optimizer->start(vec({0.4}));
  EXPECT_EQ(static_cast<int64_t>(state.buffers.size()), optimizer->buffer_count());
  for (int t = 0; t < 8; ++t) {
    const double g = std::sin(1.7 * t + 0.3);
    state = optimizer->step(state, vec({g}), {rate, {}});
    if (GetParam() == "gd") {
      w -= rate * g;
    } else if (GetParam() == "adam") {
      m = beta1 * m + (1 - beta1) * g;
      v = beta2 * v + (1 - beta2) * g * g;
      w -=
          rate * (m / (1 - std::pow(beta1, t + 1))) / (std::sqrt(v / (1 - std::pow(beta2, t + 1))) + epsilon);
    } else {
      m = beta * m + g;
      w -= rate * (GetParam() == "nesterov" ? g + beta * m : m);
    }
    EXPECT_NEAR(number(state.w), w, 1e-15);
    EXPECT_EQ(state.step, t + 1);
  }
}

// torch.optim of PyTorch 1.13: SGD and Adam, lr 0.05, momentum and betas as above, from (0.5, -1, 2).
TEST_P(EveryInner, steps_are_pytorchs_numbers) {
  const std::map<std::string, Tensor> expected = {
      {"gd", vec({0.41, -1.045, 1.99985})},
      {"heavy-ball", vec({0.3644, -1.0066, 1.99981})},
      {"nesterov", vec({0.30152, -1.05028, 1.999698})},
      {"adam", vec({0.35219152716386265, -0.9618468197448504, 1.9177415297650833})}};
  InnerState state = optimizer->start(vec({0.5, -1, 2}));
  for (int t = 0; t < 3; ++t) {
    state = optimizer->step(state, vec({0.3 * (t + 1), -0.7 + t, 1e-3 * t}), {0.05, {}});
  }
  EXPECT_LT(relative_error(state.w, expected.at(GetParam())), 1e-15);
}

TEST_P(EveryInner, a_learned_rate_steps_like_a_number) {
  const InnerState before =
      optimizer->step(optimizer->start(random_vector(4, 1)), random_vector(4, 2), {0.1, {}});
  const Tensor gradient = random_vector(4, 3);
  const Tensor by_number = optimizer->step(before, gradient, {0.07, {}}).w;
  EXPECT_LT(relative_error(optimizer->step(before, gradient, {0, vec({0.07})}).w, by_number), 1e-15);
  const Tensor per_variable = vec({0.07, 0.2, 0.07, 0.3});
  const Tensor by_variable = optimizer->step(before, gradient, {0, per_variable}).w;
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor one = optimizer->step(before, gradient, {number(per_variable[i]), {}}).w;
    EXPECT_NEAR(number(by_variable[i]), number(one[i]), 1e-15);
  }
}

TEST_P(EveryInner, a_step_writes_to_nothing) {
  const InnerState before =
      optimizer->step(optimizer->start(random_vector(4, 1)), random_vector(4, 2), {0.1, {}});
  const Tensor gradient = random_vector(4, 3);
  std::vector<Tensor> copies = {before.w.clone(), gradient.clone()};
  for (const Tensor& buffer : before.buffers) copies.push_back(buffer.clone());
  const InnerState after = optimizer->step(before, gradient, {0.1, {}});
  optimizer->adjoint(before, gradient, {0.1, {}}, after);
  optimizer->tangent(before, gradient, {0.1, {}}, after, gradient, {});
  EXPECT_TRUE(at::equal(before.w, copies[0]) && at::equal(gradient, copies[1]));
  for (size_t i = 0; i < before.buffers.size(); ++i) EXPECT_TRUE(at::equal(before.buffers[i], copies[i + 2]));
  EXPECT_EQ(after.bytes(), 32 * (1 + optimizer->buffer_count()));
}

// A state in mid-run, an adjoint and a tangent of the same shape.
struct Pieces {
  InnerState before, adjoint, tangent;
  Tensor gradient, gradient_tangent;
};
Pieces pieces(const InnerOptimizer& optimizer, int64_t steps_before) {
  Pieces p;
  p.before = optimizer.start(random_vector(5, 1));
  for (int64_t t = 0; t < steps_before; ++t) {
    p.before = optimizer.step(p.before, random_vector(5, 100 + static_cast<uint64_t>(t)), {0.1, {}});
  }
  p.gradient = random_vector(5, 2);
  p.gradient_tangent = random_vector(5, 3);
  for (auto* state : {&p.adjoint, &p.tangent}) {
    const uint64_t seed = state == &p.adjoint ? 20 : 30;
    state->w = random_vector(5, seed);
    for (int64_t i = 0; i < optimizer.buffer_count(); ++i) {
      state->buffers.push_back(random_vector(5, seed + 1 + static_cast<uint64_t>(i)));
    }
  }
  return p;
}
std::vector<StepRate> rates() {
  return {{0.07, {}}, {0, vec({0.07})}, {0, vec({0.07, 0.2, 0.01, 0.3, 0.1})}};
}
double inner_product(const InnerState& a, const InnerState& b) {
  double sum = number(a.w.dot(b.w));
  for (size_t i = 0; i < a.buffers.size(); ++i) sum += number(a.buffers[i].dot(b.buffers[i]));
  return sum;
}

TEST_P(EveryInner, the_adjoint_is_autograd_through_the_step) {
  const at::AutoGradMode enable(true);
  const auto leaf = [](const Tensor& t) { return t.detach().clone().requires_grad_(true); };
  for (const int64_t steps_before : {0, 1, 6}) {
    for (const StepRate& rate : rates()) {
      const Pieces p = pieces(*optimizer, steps_before);
      InnerState before{leaf(p.before.w), {}, p.before.step};
      std::vector<Tensor> inputs = {before.w, leaf(p.gradient)};
      for (const Tensor& buffer : p.before.buffers) {
        before.buffers.push_back(leaf(buffer));
        inputs.push_back(before.buffers.back());
      }
      StepRate rate_leaf = rate;
      if (rate.learned.defined()) inputs.push_back(rate_leaf.learned = leaf(rate.learned));
      // A buffer that the step adds to directly has gradient there even where v = 0 at the very first step.
      const InnerState after = optimizer->step(before, inputs[1], rate_leaf);
      std::vector<Tensor> outputs = {after.w}, seeds = {p.adjoint.w};
      outputs.insert(outputs.end(), after.buffers.begin(), after.buffers.end());
      seeds.insert(seeds.end(), p.adjoint.buffers.begin(), p.adjoint.buffers.end());
      const auto expected = torch::autograd::grad(outputs, inputs, seeds);

      const StepAdjoint found = optimizer->adjoint(p.before, p.gradient, rate, p.adjoint);
      EXPECT_LT(relative_error(found.before.w, expected[0]), 1e-14);
      EXPECT_LT(relative_error(found.gradient, expected[1]), 1e-13);
      for (size_t i = 0; i < found.before.buffers.size(); ++i) {
        EXPECT_LT(relative_error(found.before.buffers[i], expected[2 + i]), 1e-13) << "buffer " << i;
      }
      EXPECT_EQ(found.rate.defined(), rate.learned.defined());
      if (found.rate.defined()) {
        const Tensor by_rate = rate.learned.numel() == 1 ? found.rate.sum().reshape({1}) : found.rate;
        EXPECT_LT(relative_error(by_rate, expected.back()), 1e-14);
      }
    }
  }
}

// <tangent(t), a> = <t, adjoint(a)>, over state, gradient and rate.
TEST_P(EveryInner, the_tangent_is_the_transpose_of_the_adjoint) {
  for (const int64_t steps_before : {0, 1, 6}) {
    for (const StepRate& rate : rates()) {
      const Pieces p = pieces(*optimizer, steps_before);
      const Tensor rate_tangent = rate.learned.defined() ? random_like(rate.learned, 9) : Tensor();
      const InnerState forward =
          optimizer->tangent(p.before, p.gradient, rate, p.tangent, p.gradient_tangent, rate_tangent);
      const StepAdjoint back = optimizer->adjoint(p.before, p.gradient, rate, p.adjoint);
      double right = inner_product(p.tangent, back.before) + number(p.gradient_tangent.dot(back.gradient));
      if (rate_tangent.defined()) right += number((back.rate * rate_tangent).sum());
      const double left = inner_product(forward, p.adjoint);
      EXPECT_NEAR(left, right, 1e-12 * (1 + std::abs(left)));
    }
  }
}

// Just below it the iterates of a quadratic die out, just above they grow.
TEST_P(EveryInner, the_largest_safe_rate_is_where_a_quadratic_turns) {
  const Tensor curvatures = vec({4, 1.5, 0.3});
  const double safe = optimizer->largest_safe_rate(4);
  EXPECT_EQ(optimizer->largest_safe_rate(0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(optimizer->largest_safe_rate(-1), std::numeric_limits<double>::infinity());
  if (GetParam() == "adam") {
    EXPECT_EQ(safe, std::numeric_limits<double>::infinity());
    return;
  }
  const auto length_after = [&](double rate) {
    InnerState state = optimizer->start(vec({1, 1, 1}));
    for (int t = 0; t < 2000; ++t) state = optimizer->step(state, curvatures * state.w, {rate, {}});
    return length(state.w);
  };
  EXPECT_LT(length_after(0.99 * safe), 1e-3);
  EXPECT_GT(length_after(1.01 * safe), 1e3);
}

INSTANTIATE_TEST_SUITE_P(Names, EveryInner, ::testing::ValuesIn(inner_optimizer_names()),
                         [](const auto& row) { return test_name(row.param); });

// "Adam at zero" of docs/mathematics.md: NaN from Adam's square root at zero under double differentiation. At
// the first step the direction is g / (|g| + epsilon), whose derivative is epsilon / (|g| + epsilon)^2: 1 /
// epsilon at zero.
TEST(InnerAdam, is_safe_and_right_at_zero_second_moment) {
  const double epsilon = 1e-6;
  const auto adam = make_inner_optimizer(options_of("adam"));
  const InnerState before = adam->start(vec({0, 0, 0, 0}));
  const Tensor gradient =
      vec({0, 1e-170, 1e-10, 0.3});  // the second one's square is zero in double precision
  const InnerState after = adam->step(before, gradient, {1, {}});
  EXPECT_LT(relative_error(after.w, -gradient / (gradient.abs() + epsilon)), 1e-14);
  const StepAdjoint back =
      adam->adjoint(before, gradient, {1, {}},
                    {at::ones({4}, doubles()), {at::zeros({4}, doubles()), at::zeros({4}, doubles())}});
  const Tensor expected = -epsilon / (gradient.abs() + epsilon).square();
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(number(back.gradient[i] / expected[i]), 1, 1e-12) << i;
  // Far from zero it is the difference of two nearly equal numbers of size 1/|g|.
  EXPECT_NEAR(number(back.gradient[3]), number(expected[3]), 1e-15);

  // The textbook form, differentiated automatically, is what users meet elsewhere.
  const at::AutoGradMode enable(true);
  const Tensor leaf = gradient.clone().requires_grad_(true);
  const Tensor naive = leaf / (leaf.square().sqrt() + epsilon);
  EXPECT_TRUE(torch::autograd::grad({naive.sum()}, {leaf})[0].isnan().any().item<bool>());
}

// A coordinate that begins at its optimum has zero gradient at every step, but its derivative is not zero.
// With e_t = dw_t/dx - 1 the steps are linear there: dm_t = b1 dm_{t-1} + (1-b1) e_{t-1}, e_t = e_{t-1} -
// r/eps dm_t/(1-b1^t).
TEST(InnerAdam, derivatives_pass_through_a_coordinate_at_rest) {
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch&) { return 0.5 * (w - x).square().sum(); },
      [](const Tensor& w, const Tensor&, const Batch&) { return w[0] + 3 * w[1]; }, vec({2, 0}), vec({2, 1}));
  InnerOptions options;
  options.optimizer = "adam";
  options.steps = 7;
  options.rate = 0.05;
  options.epsilon = 0.1;
  Oracle oracle(problem);
  const Tensor x = problem.initial_outer(0);
  const Tensor reverse =
      hypergradient_at(oracle, x, problem.initial_inner(0), options, Reverse()).hypergradient.value;
  double e = -1, dm = 0;
  for (int t = 1; t <= 7; ++t) {
    dm = 0.9 * dm + 0.1 * e;
    e -= 0.05 / 0.1 * dm / (1 - std::pow(0.9, t));
  }
  EXPECT_NEAR(number(reverse[0]), 1 + e, 1e-14);
  const Tensor forward =
      hypergradient_at(oracle, x, problem.initial_inner(0), options, Forward()).hypergradient.value;
  EXPECT_LT(relative_error(forward, reverse), 1e-14);
  const Trajectory inner = run_all_kept(oracle, x, problem.initial_inner(0), options);
  EXPECT_LT(relative_error(graph_hypergradient(problem, x, inner, 0, false), reverse), 1e-14);
}

TEST(InnerOptions, names_what_is_wrong) {
  const auto expect = [](const std::function<void(InnerOptions&)>& spoil, const char* option,
                         const char* bound) {
    InnerOptions options;
    spoil(options);
    EXPECT_THAT([&] { make_inner_optimizer(options); },
                ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr(option), HasSubstr(bound))));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  expect([](InnerOptions& o) { o.optimizer = "sgd"; }, "'sgd'", "gd, heavy-ball, nesterov, adam");
  expect([](InnerOptions& o) { o.steps = -1; }, "inner_steps = -1", "must be 0 to 1000000000");
  expect([](InnerOptions& o) { o.steps = INT64_MAX; }, "inner_steps = 9223372036854775807",
         "must be 0 to 1000000000");
  for (const double bad : {0.0, -1.0, nan, infinity}) {
    expect([&](InnerOptions& o) { o.rate = bad; }, "inner_rate", "finite and above 0");
    expect([&](InnerOptions& o) { o.epsilon = bad; }, "inner_epsilon", "finite and above 0");
  }
  for (const double bad : {1.0, -0.1, nan}) {
    expect([&](InnerOptions& o) { o.momentum = bad; }, "inner_momentum", "at least 0 and below 1");
    expect([&](InnerOptions& o) { o.beta1 = bad; }, "inner_beta1", "at least 0 and below 1");
    expect([&](InnerOptions& o) { o.beta2 = bad; }, "inner_beta2", "at least 0 and below 1");
  }
  expect([](InnerOptions& o) { o.schedule.kind = ScheduleKind::cosine; }, "total_steps", "at least 1");
  for (const std::string& name : inner_optimizer_names()) {
    EXPECT_EQ(make_inner_optimizer(options_of(name))->name(), name);
  }
}

}  // namespace
}  // namespace bilevel::test
