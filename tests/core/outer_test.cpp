#include "bilevel/core/outer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/random.h"

#include "tests/messages.h"

namespace bilevel {
namespace {

using test::message;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<at::TensorOptions> types_and_devices() {
  std::vector<at::TensorOptions> result{at::kFloat, at::kDouble};
  if (at::hasCUDA()) {
    result.push_back(at::TensorOptions().dtype(at::kFloat).device(at::kCUDA));
    result.push_back(at::TensorOptions().dtype(at::kDouble).device(at::kCUDA));
  }
  return result;
}
double tolerance(const Tensor& tensor) { return tensor.scalar_type() == at::kFloat ? 2e-6 : 1e-14; }

Tensor vector(const std::vector<double>& values, const at::TensorOptions& options = at::kDouble) {
  return at::tensor(values).to(options.device(), c10::typeMetaToScalarType(options.dtype()));
}
void expect_near(const Tensor& actual, const std::vector<double>& expected, double bound) {
  const Tensor values = actual.to(at::kCPU, at::kDouble);
  ASSERT_EQ(values.numel(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(values[static_cast<int64_t>(i)].item<double>(), expected[i], bound) << "entry " << i;
  }
}

// A hypergradient that differs from step to step and entry to entry, signs and sizes included.
double gradient_at(int64_t step, size_t entry, double x) {
  return std::sin(1.0 + static_cast<double>(step) * (1.3 + static_cast<double>(entry))) *
             std::pow(10.0, static_cast<double>(entry) - 1) +
         0.3 * x;
}
using Rule = std::function<double(int64_t step, size_t entry, double x, double gradient)>;

// Runs the optimiser and a scalar recursion written out by hand side by side.
void compare(const OuterOptimizer& optimizer, const Rule& rule, int64_t steps) {
  for (const at::TensorOptions& options : types_and_devices()) {
    std::vector<double> expected{0.5, -1, 2};
    Tensor x = vector(expected, options);
    OuterState state = optimizer.init(x);
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<double> gradient;
      for (size_t i = 0; i < 3; ++i) gradient.push_back(gradient_at(step, i, expected[i]));
      x = optimizer.step(x, vector(gradient, options), state);
      for (size_t i = 0; i < 3; ++i) expected[i] = rule(step, i, expected[i], gradient[i]);
      ASSERT_NO_FATAL_FAILURE(expect_near(x, expected, tolerance(x) * 20));
    }
    EXPECT_EQ(state.step, steps);
    EXPECT_EQ(x.scalar_type(), c10::typeMetaToScalarType(options.dtype()));
    EXPECT_EQ(x.device().type(), options.device().type());
  }
}

TEST(Outer, sgd_follows_its_schedule) {
  for (const auto kind :
       {ScheduleKind::constant, ScheduleKind::inverse_sqrt, ScheduleKind::cosine, ScheduleKind::linear}) {
    OuterSgdOptions options;
    options.rate = 0.05;
    options.schedule = {kind, 10, 0.2};
    compare(
        make_outer_sgd(options),
        [&](int64_t step, size_t, double x, double gradient) {
          return x - 0.05 * options.schedule.factor(step) * gradient;
        },
        15);
  }
}

TEST(Outer, momentum_is_the_heavy_ball) {
  OuterSgdOptions options;
  options.rate = 0.02;
  options.momentum = 0.9;
  std::vector<double> ball;
  compare(
      make_outer_sgd(options),
      [&](int64_t step, size_t i, double x, double gradient) {
        if (step == 0 && i == 0) ball.assign(3, 0);
        ball[i] = 0.9 * ball[i] + gradient;
        return x - 0.02 * ball[i];
      },
      20);
}

TEST(Outer, adam_is_the_hand_written_recursion) {
  OuterAdamOptions options;
  options.rate = 0.03;
  options.beta1 = 0.5;
  options.beta2 = 0.99;
  options.epsilon = 1e-3;  // large enough to tell where it is added
  options.preparation.weight_decay = 0.1;
  options.schedule = {ScheduleKind::linear, 20, 0.5};
  std::vector<double> mean;
  std::vector<double> squares;
  compare(
      make_outer_adam(options),
      [&](int64_t step, size_t i, double x, double gradient) {
        if (step == 0 && i == 0) {
          mean.assign(3, 0);
          squares.assign(3, 0);
        }
        gradient += 0.1 * x;
        mean[i] = 0.5 * mean[i] + 0.5 * gradient;
        squares[i] = 0.99 * squares[i] + 0.01 * gradient * gradient;
        const auto t = static_cast<double>(step + 1);
        const double rate = 0.03 * (1 - 0.5 * std::min(1.0, static_cast<double>(step) / 20));
        return x - rate * (mean[i] / (1 - std::pow(0.5, t))) /
                       (std::sqrt(squares[i] / (1 - std::pow(0.99, t))) + 1e-3);
      },
      30);
}

// torch.optim.Adam([0.5, -1, 2], lr=0.1, weight_decay=0.01), the gradient (1, -2, 0.001 k) at step k = 1..5,
// in double, PyTorch 1.13.
TEST(Outer, adam_gives_pytorchs_numbers) {
  OuterAdamOptions options;
  options.rate = 0.1;
  options.preparation.weight_decay = 0.01;
  const OuterOptimizer adam = make_outer_adam(options);
  Tensor x = vector({0.5, -1, 2});
  OuterState state = adam.init(x);
  for (int k = 1; k <= 5; ++k) x = adam.step(x, vector({1, -2, 0.001 * k}), state);
  expect_near(x, {4.338941375003902e-05, -0.5000216261184438, 1.500000237114482}, 1e-14);
}

TEST(Outer, the_first_step_of_adam_is_the_rate_in_every_entry) {
  for (const at::TensorOptions& options : types_and_devices()) {
    const OuterOptimizer adam = make_outer_adam();
    const Tensor x = at::zeros({3}, options);
    OuterState state = adam.init(x);
    expect_near(adam.step(x, vector({5, -100, 0}, options), state), {-0.001, 0.001, 0}, 1e-8);
  }
}

TEST(Outer, clipping_by_norm_keeps_the_direction) {
  const OuterOptimizer optimizer({clip_by_norm(2)});
  for (const at::TensorOptions& options : types_and_devices()) {
    const Tensor x = at::zeros({2}, options);
    OuterState state = optimizer.init(x);
    expect_near(optimizer.step(x, vector({3, 4}, options), state), {-1.2, -1.6}, tolerance(x));
    expect_near(optimizer.step(x, vector({0.3, 0.4}, options), state), {-0.3, -0.4}, tolerance(x));
    expect_near(optimizer.step(x, vector({0, 0}, options), state), {0, 0}, 0);
    // A plain norm is infinite here (and 0 in the third), and the clipped step would be zero.
    expect_near(optimizer.step(x, vector({3e30, 4e30}, options), state), {-1.2, -1.6}, tolerance(x));
    expect_near(optimizer.step(x, vector({3e-30, 4e-30}, options), state), {-3e-30, -4e-30}, 1e-36);
  }
  OuterState state = optimizer.init(at::zeros({0}));
  EXPECT_EQ(optimizer.step(at::zeros({0}), at::zeros({0}), state).numel(), 0);
}

TEST(Outer, clipping_by_value_and_the_order_of_preparation) {
  OuterSgdOptions options;
  options.rate = 1;
  options.preparation.clip_value = 0.5;
  options.preparation.weight_decay = 0.1;
  compare(
      make_outer_sgd(options),
      [](int64_t, size_t, double x, double gradient) {
        return x - (std::clamp(gradient, -0.5, 0.5) + 0.1 * x);  // the decay is not clipped
      },
      5);
  options.preparation = {5, 3, 0};  // the norm first, then the entries
  OuterState state;
  const OuterOptimizer optimizer = make_outer_sgd(options);
  const Tensor x = vector({0, 0});
  state = optimizer.init(x);
  expect_near(optimizer.step(x, vector({6, 8}), state), {-3, -3}, 1e-14);
  expect_near(optimizer.step(x, vector({1, 10}), state), {-5 / std::sqrt(101), -3}, 1e-14);
}

TEST(Outer, a_step_writes_neither_to_x_nor_to_the_hypergradient_nor_to_a_copied_state) {
  const OuterOptimizer adam({clip_by_norm(1), add_weight_decay(0.1), heavy_ball(0.9),
                             scale_by_adam(0.9, 0.999, 1e-8), scale_by_rate(0.1)},
                            {project_to_nonnegative()});
  const Tensor x = vector({1, 2});
  const Tensor gradient = vector({3, -4});
  OuterState state = adam.init(x);
  const Tensor first = adam.step(x, gradient, state);
  const OuterState kept = state;  // shallow, as a checkpoint in memory is
  const Tensor second = adam.step(first, gradient, state);
  EXPECT_TRUE(x.equal(vector({1, 2})));
  EXPECT_TRUE(gradient.equal(vector({3, -4})));
  OuterState replayed = kept;
  EXPECT_TRUE(adam.step(first, gradient, replayed).equal(second));
  EXPECT_EQ(kept.step, 1);
  EXPECT_EQ(state.step, 2);
}

TEST(Outer, x_keeps_no_graph) {
  const OuterOptimizer adam = make_outer_adam();
  const Tensor x = vector({1, 2}).requires_grad_();
  OuterState state = adam.init(x);
  EXPECT_FALSE(adam.step(x, x * 2, state).requires_grad());
  EXPECT_FALSE(state.transforms[0][0].requires_grad());
}

// Mistake 5 of docs/mathematics.md: any gradient that contains a NaN replaced by zeros, silently.
TEST(Outer, a_hypergradient_with_nan_is_refused_not_replaced_by_zero) {
  for (const at::TensorOptions& options : types_and_devices()) {
    const Tensor x = vector({1, 2, 3, 4}, options);
    const Tensor gradient = vector({1, nan, infinity, -infinity}, options);
    OuterAdamOptions choice;
    choice.preparation = {1, 1, 0.1};
    const OuterOptimizer adam = make_outer_adam(choice);
    // True where the rule stops at a NaN instead of going on with something.
    const auto refuses = [&](auto step) {
      try {
        step();
      } catch (const std::runtime_error&) {
        return true;
      }
      return false;
    };
    OuterState state = adam.init(x);
    EXPECT_TRUE(refuses([&] { adam.step(x, gradient, state); }));
    // The bug as it is found in public code; it must fail the same check.
    OuterState careless = adam.init(x);
    EXPECT_FALSE(refuses([&] {
      const Tensor replaced = at::isnan(gradient).any().item<bool>() ? at::zeros_like(gradient) : gradient;
      adam.step(x, replaced, careless);
    }));

    state.step = 7;
    EXPECT_THAT(message<std::runtime_error>([&] { adam.step(x, gradient, state); }),
                AllOf(HasSubstr("step 7"), HasSubstr("3 of 4"), HasSubstr("1 NaN"), HasSubstr("2 infinite")));
    EXPECT_EQ(state.step, 7);
    EXPECT_EQ(state.transforms.at(3).at(1).abs().sum().item<double>(), 0);  // nothing was remembered of it
  }
}

TEST(Outer, an_overflow_inside_the_chain_is_refused_and_leaves_the_state) {
  // 1e25 squared is infinite in float: Adam would divide by it and stand still for ever.
  const OuterOptimizer adam = make_outer_adam();
  const Tensor x = at::ones({2});
  OuterState state = adam.init(x);
  const Tensor second = adam.step(x, at::ones({2}), state);
  EXPECT_THAT(message<std::runtime_error>([&] { adam.step(second, at::full({2}, 1e25), state); }),
              AllOf(HasSubstr("step 1"), HasSubstr("1e+25"), HasSubstr("Lower the outer rate")));
  EXPECT_EQ(state.step, 1);
  EXPECT_TRUE(at::isfinite(state.transforms[0][1]).all().item<bool>());
  const OuterOptimizer sgd({scale_by_rate(1e30)},
                           {project_to_box(-1, 1)});  // the box would hide the infinity
  OuterState plain = sgd.init(x);
  EXPECT_THROW(sgd.step(x, at::full({2}, 1e20), plain), std::runtime_error);
}

TEST(Outer, projections_are_applied_after_the_step_in_order) {
  OuterSgdOptions options;
  options.rate = 1;
  const Tensor x = vector({0.5, 0.5, 0.5});
  OuterOptimizer optimizer = make_outer_sgd(options, {project_to_box(-0.25, 0.75)});
  OuterState state = optimizer.init(x);
  EXPECT_TRUE(optimizer.step(x, vector({2, -2, 0}), state).equal(vector({-0.25, 0.75, 0.5})));
  optimizer = make_outer_sgd(options, {project_to_box(-0.25, 0.75), project_to_nonnegative()});
  EXPECT_TRUE(optimizer.step(x, vector({2, -2, 0}), state).equal(vector({0, 0.75, 0.5})));
  optimizer = make_outer_sgd(options, {project_to_box(-infinity, 0.5)});
  EXPECT_TRUE(optimizer.step(x, vector({9, -2, 0}), state).equal(vector({-8.5, 0.5, 0.5})));
}

TEST(Outer, simplex_projection_of_known_points) {
  for (const at::TensorOptions& options : types_and_devices()) {
    const Projection project = project_to_simplex();
    const double bound = options.dtype() == at::kFloat ? 1e-6 : 1e-15;
    expect_near(project(vector({0.2, 0.3, 0.5}, options)), {0.2, 0.3, 0.5}, bound);  // stays where it is
    expect_near(project(vector({7, 7, 7, 7}, options)), {0.25, 0.25, 0.25, 0.25}, bound);
    expect_near(project(vector({2, 0, -1}, options)), {1, 0, 0}, bound);
    expect_near(project(vector({0.5, 0.9, -0.4}, options)), {0.3, 0.7, 0}, bound);
    expect_near(project(vector({-3}, options)), {1}, bound);
    // Far from the origin and far apart: shifts cancel and sums overflow in a careless form.
    expect_near(project(vector({1048576, 1048576.5}, options)), {0.25, 0.75}, bound);
    expect_near(project(vector({-3e38, 0, 0.5, -3e38, -3e38}, options)), {0, 0.25, 0.75, 0, 0}, bound);
    // Rows are projected each on its own.
    expect_near(project_to_simplex(2)(vector({0.5, 0.9, 5, 1, 0, 0}, options)), {0.3, 0.7, 1, 0, 0.5, 0.5},
                bound);
    expect_near(project_to_simplex(1)(vector({0.5, -9}, options)), {1, 1}, bound);
  }
}

// p is the projection of x onto the simplex if and only if p >= 0, sum p = 1 and, for some t, p_i = x_i - t
// where p_i > 0 and x_i <= t where p_i = 0.
TEST(Outer, simplex_projection_satisfies_the_optimality_conditions) {
  for (const at::TensorOptions& options : types_and_devices()) {
    const double bound = options.dtype() == at::kFloat ? 4e-6 : 1e-13;
    Random random(11);
    for (const int64_t length : {1, 2, 3, 10, 257}) {
      for (const double scale : {0.01, 0.3, 1.0, 10.0}) {
        const Tensor x = random.normal({8 * length}, options) * scale;
        const Tensor p = project_to_simplex(length)(x);
        EXPECT_EQ(p.sizes(), x.sizes());
        const Tensor rows = x.view({8, length}).to(at::kCPU, at::kDouble);
        const Tensor projected = p.view({8, length}).to(at::kCPU, at::kDouble);
        EXPECT_GE(projected.min().item<double>(), 0);
        EXPECT_LT((projected.sum(1) - 1).abs().max().item<double>(), bound * 10);
        for (int64_t row = 0; row < 8; ++row) {
          const Tensor inside = projected[row] > 0;
          const Tensor shift = (rows[row] - projected[row]).masked_select(inside);
          ASSERT_GT(shift.numel(), 0);
          const auto t = shift.mean().item<double>();
          EXPECT_LT((shift - t).abs().max().item<double>(), bound * (1 + scale));
          const Tensor outside = rows[row].masked_select(inside.logical_not());
          if (outside.numel() > 0) {
            EXPECT_LE(outside.max().item<double>(), t + bound * (1 + scale));
          }
        }
      }
    }
  }
}

TEST(Outer, misuse_names_the_option_its_value_and_the_bound) {
  const auto sgd = [](auto change) {
    return message([&] {
      OuterSgdOptions options;
      change(options);
      make_outer_sgd(options);
    });
  };
  const auto adam = [](auto change) {
    return message([&] {
      OuterAdamOptions options;
      change(options);
      make_outer_adam(options);
    });
  };
  EXPECT_THAT(sgd([](auto& o) { o.rate = 0; }), AllOf(HasSubstr("rate = 0"), HasSubstr("above 0")));
  EXPECT_THAT(sgd([](auto& o) { o.rate = nan; }), HasSubstr("rate = nan"));
  EXPECT_THAT(sgd([](auto& o) { o.momentum = 1; }),
              AllOf(HasSubstr("momentum = 1"), HasSubstr("at least 0 and below 1")));
  EXPECT_THAT(sgd([](auto& o) { o.preparation.clip_norm = -1; }), HasSubstr("clip_norm = -1"));
  EXPECT_THAT(sgd([](auto& o) { o.preparation.clip_value = infinity; }), HasSubstr("clip_value = inf"));
  EXPECT_THAT(sgd([](auto& o) { o.preparation.weight_decay = -0.5; }), HasSubstr("weight_decay = -0.5"));
  EXPECT_THAT(sgd([](auto& o) { o.schedule.kind = ScheduleKind::cosine; }), HasSubstr("total_steps = 0"));
  EXPECT_THAT(adam([](auto& o) { o.rate = -1; }), HasSubstr("rate = -1"));
  EXPECT_THAT(adam([](auto& o) { o.beta1 = 1; }), HasSubstr("beta1 = 1"));
  EXPECT_THAT(adam([](auto& o) { o.beta2 = -0.1; }), HasSubstr("beta2 = -0.1"));
  EXPECT_THAT(adam([](auto& o) { o.epsilon = 0; }), HasSubstr("epsilon = 0"));
  EXPECT_THAT(message([] { project_to_box(2, 1); }), HasSubstr("[2, 1]"));
  EXPECT_THAT(message([] { project_to_box(nan, 1); }), HasSubstr("low <= high"));
  EXPECT_THAT(message([] { project_to_simplex(-1); }), HasSubstr("row_length = -1"));
  EXPECT_THAT(message([] { project_to_simplex(3)(at::zeros({4})); }),
              AllOf(HasSubstr("row_length = 3"), HasSubstr("4")));
  EXPECT_THAT(message([] { project_to_simplex()(at::zeros({0})); }), HasSubstr("0 entries"));
  EXPECT_THAT(message([] { OuterOptimizer({nullptr}); }), HasSubstr("null"));
}

TEST(Outer, tensors_and_states_that_do_not_belong_are_refused) {
  const OuterOptimizer adam = make_outer_adam();
  const Tensor x = vector({1, 2});
  OuterState state = adam.init(x);
  EXPECT_THAT(message([&] { adam.step(x, vector({1}), state); }), AllOf(HasSubstr("(2)"), HasSubstr("(1)")));
  EXPECT_THAT(message([&] { adam.step(x, at::ones({2}, at::kFloat), state); }), HasSubstr("Float"));
  EXPECT_THAT(message([&] { adam.step(x, Tensor(), state); }), HasSubstr("undefined"));
  EXPECT_THAT(message([&] { adam.init(at::ones({2}, at::kLong)); }), HasSubstr("Long"));
  OuterState empty;
  EXPECT_THAT(message([&] { adam.step(x, x, empty); }), HasSubstr("init(x)"));
  OuterState other = adam.init(vector({1, 2, 3}));
  EXPECT_THAT(message([&] { adam.step(x, x, other); }), AllOf(HasSubstr("scale_by_adam"), HasSubstr("(3)")));
  OuterState ball = OuterOptimizer({heavy_ball(0.9), scale_by_rate(1)}).init(x);
  EXPECT_THAT(message([&] { adam.step(x, x, ball); }), HasSubstr("2 tensors"));
  OuterState negative = adam.init(x);
  negative.step = -1;
  EXPECT_THAT(message([&] { adam.step(x, x, negative); }), HasSubstr("step -1"));
}

}  // namespace
}  // namespace bilevel
