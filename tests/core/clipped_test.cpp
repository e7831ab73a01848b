// Clipping around every inner optimiser: its step against the closed form, its derivatives against automatic
// differentiation, differences and each other, and whole inner loops of which some steps clip.
#include "bilevel/core/clipped.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bilevel/problems/mlp.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

InnerOptions clipped_options(const std::string& name, double clip_norm) {
  InnerOptions options;
  options.optimizer = name;
  options.clip_norm = clip_norm;
  options.epsilon = 1e-3;
  return options;
}

class EveryClipped : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<InnerOptimizer> clipped(double norm) const {
    return make_inner_optimizer(clipped_options(GetParam(), norm));
  }
  const std::unique_ptr<InnerOptimizer> plain = clipped(0);
};

TEST_P(EveryClipped, steps_see_pytorchs_clipped_gradient) {
  const auto optimizer = clipped(2);
  EXPECT_EQ(optimizer->name(), GetParam() + " clipped at 2");
  EXPECT_EQ(optimizer->buffer_count(), plain->buffer_count());
  const InnerState before = plain->step(plain->start(vec({1, 2})), vec({0.1, 0.2}), {0.1, {}});
  const Tensor longer = vec({3, -4});  // of norm 5
  const InnerState found = optimizer->step(before, longer, {0.1, {}});
  const InnerState expected = plain->step(before, vec({3 * 2 / 5.000001, -4 * 2 / 5.000001}), {0.1, {}});
  EXPECT_LT(relative_error(found.w, expected.w), 1e-15);
  for (size_t i = 0; i < found.buffers.size(); ++i) {
    EXPECT_LT(relative_error(found.buffers[i], expected.buffers[i]), 1e-15);
  }
  const Tensor shorter = vec({0.3, -0.4});
  EXPECT_TRUE(
      at::equal(optimizer->step(before, shorter, {0.1, {}}).w, plain->step(before, shorter, {0.1, {}}).w));
}

TEST_P(EveryClipped, adjoint_is_autograd_through_the_step_and_tangent_its_transpose) {
  for (const double norm : {0.5, 100.0}) {
    const auto optimizer = clipped(norm);
    EXPECT_TRUE(optimizer->adjoint_needs_gradient());
    const InnerState before =
        optimizer->step(optimizer->start(random_vector(5, 1)), random_vector(5, 2), {0.1, {}});
    const Tensor gradient = random_vector(5, 3);
    ASSERT_EQ(length(gradient) > norm, norm < 1);
    InnerState adjoint{random_vector(5, 4), {}, 0}, tangent{random_vector(5, 5), {}, 0};
    for (size_t i = 0; i < before.buffers.size(); ++i) {
      adjoint.buffers.push_back(random_vector(5, 6 + i));
      tangent.buffers.push_back(random_vector(5, 16 + i));
    }
    const StepRate rate{0, vec({0.07, 0.2, 0.01, 0.3, 0.1})};
    const StepAdjoint back = optimizer->adjoint(before, gradient, rate, adjoint);

    const Tensor gradient_tangent = random_vector(5, 30), rate_tangent = random_vector(5, 31);
    const InnerState forward =
        optimizer->tangent(before, gradient, rate, tangent, gradient_tangent, rate_tangent);
    double left = number(forward.w.dot(adjoint.w));
    double right = number(tangent.w.dot(back.before.w)) + number(gradient_tangent.dot(back.gradient)) +
                   number(rate_tangent.dot(back.rate));
    for (size_t i = 0; i < before.buffers.size(); ++i) {
      left += number(forward.buffers[i].dot(adjoint.buffers[i]));
      right += number(tangent.buffers[i].dot(back.before.buffers[i]));
    }
    EXPECT_NEAR(left, right, 1e-13 * (1 + std::abs(left)));

    const at::AutoGradMode enable(true);
    const Tensor gradient_leaf = gradient.detach().clone().requires_grad_(true);
    const Tensor rate_leaf = rate.learned.detach().clone().requires_grad_(true);
    const InnerState after = optimizer->step(before, gradient_leaf, {0, rate_leaf});
    std::vector<Tensor> outputs = {after.w}, seeds = {adjoint.w};
    outputs.insert(outputs.end(), after.buffers.begin(), after.buffers.end());
    seeds.insert(seeds.end(), adjoint.buffers.begin(), adjoint.buffers.end());
    const auto expected = torch::autograd::grad(outputs, {gradient_leaf, rate_leaf}, seeds);
    EXPECT_LT(relative_error(back.gradient, expected[0]), 1e-13);
    EXPECT_LT(relative_error(back.rate, expected[1]), 1e-13);
  }
}

TEST_P(EveryClipped, a_zero_gradient_gives_no_nan) {
  for (const double norm : {1.0, 1e-9}) {
    const auto optimizer = clipped(norm);
    const InnerState before = optimizer->start(vec({1, 2}));
    const Tensor zero = vec({0, 0});
    InnerState ones{vec({1, 1}), {}, 0};
    for (size_t i = 0; i < before.buffers.size(); ++i) ones.buffers.push_back(vec({1, 1}));
    EXPECT_TRUE(at::equal(optimizer->step(before, zero, {0.1, {}}).w, before.w));
    const Tensor back = optimizer->adjoint(before, zero, {0.1, {}}, ones).gradient;
    // Clipping there is a multiplication by min(1, c / 1e-6).
    const Tensor unclipped = plain->adjoint(before, zero, {0.1, {}}, ones).gradient;
    EXPECT_LT(relative_error(back, unclipped * std::min(1.0, norm / 1e-6)), 1e-14);
    EXPECT_FALSE(optimizer->tangent(before, zero, {0.1, {}}, ones, ones.w, {}).w.isnan().any().item<bool>());
  }
}

// The inner loop of a network of which some steps clip and others do not.
TEST_P(EveryClipped, unrolled_estimators_are_the_derivative_of_the_steps_taken) {
  const Mlp problem;
  Oracle oracle(problem);
  const Tensor x = problem.initial_outer(0) + 0.1 * random_like(problem.initial_outer(0), 2);
  const Tensor start = problem.initial_inner(1);
  InnerOptions options = clipped_options(GetParam(), 0);
  options.steps = 8;
  options.rate = 0.05;
  std::vector<double> norms;
  for (const auto& [t, state] : run_all_kept(oracle, x, start, options).kept) {
    norms.push_back(length(oracle.inner_gradient(state.w, x, {})));
  }
  std::sort(norms.begin(), norms.end());
  options.clip_norm = 0.5 * (norms[3] + norms[4]);
  const Trajectory inner = run_all_kept(oracle, x, start, options);
  int64_t clips = 0;
  for (const auto& [t, state] : inner.kept) {
    clips += length(oracle.inner_gradient(state.w, x, {})) > options.clip_norm ? 1 : 0;
  }
  EXPECT_GT(clips, 0);
  EXPECT_LT(clips, 8);

  const Tensor whole = graph_hypergradient(problem, x, inner, 0, true);
  EstimatorSettings settings;
  settings.truncate = 8;
  settings.byte_budget = 4 * inner.final.bytes();
  for (const char* name : {"reverse", "reverse-sqrt", "reverse-binomial", "truncated", "forward"}) {
    EXPECT_LT(relative_error(estimate_along(name, settings, oracle, x, inner).value, whole), 1e-10) << name;
  }
  EXPECT_LT(relative_error(estimate_along("one-step", settings, oracle, x, inner).value,
                           graph_hypergradient(problem, x, inner, 7, false)),
            1e-10);
  const auto objective = [&](const Tensor& at) {
    return unrolled_objective(problem, at, start, options, {}, {});
  };
  Tensor u = random_like(x, 1);
  u = u / u.norm();
  EXPECT_NEAR(number(whole.dot(u)), directional_difference(objective, x, u), 1e-7 * length(whole));
  // Without the Jacobian of clipping it would be another number.
  Trajectory forgetful = inner;
  forgetful.optimizer = clipped(0);
  EXPECT_GT(relative_error(estimate_along("reverse", settings, oracle, x, forgetful).value, whole), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Names, EveryClipped, ::testing::ValuesIn(inner_optimizer_names()),
                         [](const auto& row) { return test_name(row.param); });

// The product with its Jacobian by differences of what a plain step does with it.
TEST(Clipped, the_jacobian_is_the_difference_of_clipped_gradients) {
  const auto optimizer = make_inner_optimizer(clipped_options("gd", 0.7));
  const Tensor gradient = random_vector(6, 1), v = random_vector(6, 2);
  const InnerState at_zero = optimizer->start(at::zeros({6}, doubles()));
  const auto clip = [&](const Tensor& g) { return -optimizer->step(at_zero, g, {1, {}}).w; };
  const Tensor expected = (clip(gradient + 1e-5 * v) - clip(gradient - 1e-5 * v)) / 2e-5;
  const Tensor found = optimizer->adjoint(at_zero, gradient, {1, {}}, {v, {}, 0}).gradient;
  EXPECT_LT(relative_error(-found, expected), 1e-8);
}

// A meta tensor has no values: whoever reads one back, as .item() does, throws.
TEST(Clipped, reads_nothing_back_from_the_device) {
  const auto optimizer = make_inner_optimizer(clipped_options("nesterov", 1));
  const Tensor meta = at::empty({3}, doubles().device(at::kMeta));
  EXPECT_ANY_THROW(meta.norm().item<double>());
  const InnerState before = optimizer->start(meta);
  const InnerState after = optimizer->step(before, meta, {0.1, {}});
  EXPECT_EQ(optimizer->adjoint(before, meta, {0.1, {}}, after).gradient.numel(), 3);
  EXPECT_EQ(optimizer->tangent(before, meta, {0.1, {}}, after, meta, {}).w.numel(), 3);
}

TEST(Clipped, misuse_names_the_option_and_the_bound) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, infinity, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message([&] { make_inner_optimizer(clipped_options("gd", bad)); }),
                ::testing::AllOf(::testing::HasSubstr("inner_clip"), ::testing::HasSubstr("at least 0")));
  }
  EXPECT_THAT(message([] { ClippedInner(make_inner_optimizer({}), 0); }),
              ::testing::HasSubstr("must be finite and above 0"));
  EXPECT_THAT(message([] { ClippedInner(nullptr, 1); }), ::testing::HasSubstr("null"));
}

}  // namespace
}  // namespace bilevel::test
