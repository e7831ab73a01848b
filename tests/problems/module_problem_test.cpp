// Problems on torch::nn modules against the same networks written out by hand, and against differences of
// their losses.
#include "bilevel/problems/module_problem.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/check/check.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t examples = 12, features = 4, hidden = 5, classes = 3;

struct Examples {
  Tensor inputs = Random(1).normal({examples, features}, doubles());
  Tensor labels = at::arange(examples, at::kLong).remainder(classes);
  Tensor valid_inputs = Random(2).normal({examples, features}, doubles());

  static Tensor take(const Tensor& t, const Batch& batch) {
    return batch.is_full() ? t : t.index_select(0, batch.index);
  }
};

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  return at::nll_loss(at::log_softmax(logits, 1), labels);
}

// One log weight decay for each parameter tensor.
Tensor decay(const std::vector<Tensor>& weights, const Tensor& x) {
  Tensor sum = at::zeros({}, x.options());
  for (size_t i = 0; i < weights.size(); ++i) {
    sum = sum + x[static_cast<int64_t>(i)].exp() * weights[i].square().sum();
  }
  return sum;
}

Tensor log_decays() { return vec({-2, -2.5, -1.5, -3}); }

// Both problems of a network: a module's, and the same by hand.
struct Pair {
  ModuleProblem module;
  FunctionProblem by_hand;
};

torch::nn::Sequential small_net() {
  torch::nn::Sequential net(torch::nn::Linear(features, hidden), torch::nn::Tanh(),
                            torch::nn::Linear(hidden, classes));
  net->to(at::kDouble);
  return net;
}

Pair sequential() {
  const Examples data;
  torch::nn::Sequential net = small_net();
  ModuleProblem module(
      net,
      [data](torch::nn::Sequential& n, const Tensor& x, const Batch& b) {
        return cross_entropy(n->forward(Examples::take(data.inputs, b)), Examples::take(data.labels, b)) +
               decay(n->parameters(), x);
      },
      [data](torch::nn::Sequential& n, const Tensor& x, const Batch& b) {
        return cross_entropy(n->forward(Examples::take(data.valid_inputs, b)),
                             Examples::take(data.labels, b)) +
               0.01 * x.square().sum();
      },
      log_decays(), {.inner = examples, .outer = examples});
  const Layout layout = *module.inner_layout();
  const auto logits = [layout](const Tensor& inputs, const Tensor& w) {
    const auto p = layout.split(w);
    return at::linear(at::linear(inputs, p[0], p[1]).tanh(), p[2], p[3]);
  };
  FunctionProblem by_hand(
      [=](const Tensor& w, const Tensor& x, const Batch& b) {
        return cross_entropy(logits(Examples::take(data.inputs, b), w), Examples::take(data.labels, b)) +
               decay(layout.split(w), x);
      },
      [=](const Tensor& w, const Tensor& x, const Batch& b) {
        return cross_entropy(logits(Examples::take(data.valid_inputs, b), w),
                             Examples::take(data.labels, b)) +
               0.01 * x.square().sum();
      },
      module.initial_inner(0), module.initial_outer(0));
  return {std::move(module), std::move(by_hand)};
}

// A module with a submodule, a parameter of its own that it uses twice, and one that is frozen.
struct GatedImpl : torch::nn::Module {
  GatedImpl() {
    layer = register_module("layer", torch::nn::Linear(features, classes));
    gate = register_parameter("gate", at::ones({classes}, doubles()) * 0.7);
    shift = register_parameter("shift", vec({0.1, -0.2, 0.3}), /*requires_grad=*/false);
    to(at::kDouble);
  }
  Tensor forward(const Tensor& inputs) { return gate * at::sigmoid(layer->forward(inputs) * gate + shift); }
  torch::nn::Linear layer{nullptr};
  Tensor gate, shift;
};

Pair custom() {
  const Examples data;
  const auto net = std::make_shared<GatedImpl>();
  ModuleProblem module(
      net,
      [data](const auto& n, const Tensor& x, const Batch& b) {
        return cross_entropy(n->forward(Examples::take(data.inputs, b)), Examples::take(data.labels, b)) +
               decay({n->gate, n->layer->weight, n->layer->bias}, x);
      },
      [data](const auto& n, const Tensor& x, const Batch& b) {
        return cross_entropy(n->forward(Examples::take(data.valid_inputs, b)),
                             Examples::take(data.labels, b)) +
               0.01 * x.square().sum();
      },
      log_decays(), {.inner = examples, .outer = examples});
  const Layout layout = *module.inner_layout();
  const Tensor shift = net->shift;
  const auto logits = [=](const Tensor& inputs, const Tensor& w) {
    const auto p = layout.split(w);
    const Tensor& gate = p[0];
    return gate * at::sigmoid(at::linear(inputs, p[1], p[2]) * gate + shift);
  };
  FunctionProblem by_hand(
      [=](const Tensor& w, const Tensor& x, const Batch& b) {
        return cross_entropy(logits(Examples::take(data.inputs, b), w), Examples::take(data.labels, b)) +
               decay(layout.split(w), x);
      },
      [=](const Tensor& w, const Tensor& x, const Batch& b) {
        return cross_entropy(logits(Examples::take(data.valid_inputs, b), w),
                             Examples::take(data.labels, b)) +
               0.01 * x.square().sum();
      },
      module.initial_inner(0), module.initial_outer(0));
  return {std::move(module), std::move(by_hand)};
}

struct ModuleCase {
  const char* name;
  Pair (*make)();
};

class EveryModule : public ::testing::TestWithParam<ModuleCase> {};

TEST_P(EveryModule, has_the_derivatives_of_the_network_written_by_hand) {
  const Pair pair = GetParam().make();
  Oracle module(pair.module), by_hand(pair.by_hand);
  const Tensor w = random_vector(pair.module.initial_inner(0).numel(), 3), x = random_vector(4, 4) * 0.5;
  const Tensor v = random_like(w, 5), u = random_like(x, 6);
  constexpr double tolerance = 1e-12;
  for (const Batch& batch : {Batch{}, Batch{at::tensor({1, 4, 7, 8, 11}, at::kLong), 0}}) {
    const auto a = module.linearize(w, x, batch), b = by_hand.linearize(w, x, batch);
    EXPECT_LT(relative_error(a->gradient(), b->gradient()), tolerance);
    EXPECT_LT(relative_error(a->hessian(v), b->hessian(v)), tolerance);
    EXPECT_LT(relative_error(a->cross(v), b->cross(v)), tolerance);
    EXPECT_LT(relative_error(a->cross_transposed(u), b->cross_transposed(u)), tolerance);
    EXPECT_LT(relative_error(module.inner_gradient(w, x, batch), by_hand.inner_gradient(w, x, batch)),
              tolerance);
    const OuterGradients f = module.outer_gradients(w, x, batch), g = by_hand.outer_gradients(w, x, batch);
    EXPECT_LT(relative_error(f.w, g.w), tolerance);
    EXPECT_LT(relative_error(f.x, g.x), tolerance);
    EXPECT_LT(relative_error(f.loss, g.loss), tolerance);
  }
}

TEST_P(EveryModule, has_the_derivatives_that_differences_of_its_losses_show) {
  const Pair pair = GetParam().make();
  const ModuleProblem& problem = pair.module;
  Oracle oracle(problem);
  const Tensor w = random_vector(problem.initial_inner(0).numel(), 3), x = random_vector(4, 4) * 0.5;
  const Tensor v = random_like(w, 5), u = random_like(x, 6);
  const auto linear = oracle.linearize(w, x, Batch{});
  const double along = directional_difference(
      [&](const Tensor& at) { return number(problem.inner_loss(at, x, Batch{})); }, w, v);
  EXPECT_NEAR(number(linear->gradient().dot(v)), along, 1e-9 * std::abs(along));
  const double curved = directional_difference(
      [&](const Tensor& at) { return number(oracle.inner_gradient(at, x, Batch{}).dot(v)); }, w, v);
  EXPECT_NEAR(number(linear->hessian(v).dot(v)), curved, 1e-8 * std::abs(curved));
  const double mixed = directional_difference(
      [&](const Tensor& at) { return number(oracle.inner_gradient(w, at, Batch{}).dot(v)); }, x, u);
  EXPECT_NEAR(number(linear->cross(v).dot(u)), mixed, 1e-8 * std::abs(mixed));
}

// Two graphs at two points are alive together: each keeps its own w.
TEST_P(EveryModule, keeps_the_graphs_of_several_points_apart) {
  const Pair pair = GetParam().make();
  Oracle module(pair.module), by_hand(pair.by_hand);
  const int64_t n = pair.module.initial_inner(0).numel();
  const Tensor x = log_decays(), v = random_vector(n, 5);
  const Tensor w = random_vector(n, 7), other = random_vector(n, 8);
  const auto first = module.linearize(w, x, Batch{});
  const auto second = module.linearize(other, x, Batch{});
  const Tensor at_other = second->hessian(v), at_w = first->hessian(v);
  EXPECT_LT(relative_error(at_w, by_hand.linearize(w, x, Batch{})->hessian(v)), 1e-12);
  EXPECT_LT(relative_error(at_other, by_hand.linearize(other, x, Batch{})->hessian(v)), 1e-12);
}

TEST_P(EveryModule, gives_every_estimator_what_the_hand_written_one_gives) {
  const Pair pair = GetParam().make();
  CheckOptions options;
  options.inner = {.steps = 30, .rate = 0.1};
  options.reference_at_iterate = true;
  const CheckResult module = check_problem(pair.module, options);
  const CheckResult by_hand = check_problem(pair.by_hand, options);
  ASSERT_EQ(module.methods.size(), estimator_rows().size());
  ASSERT_TRUE(module.unrolled.value.defined());
  EXPECT_LT(relative_error(module.unrolled.value, by_hand.unrolled.value), 1e-10);
  for (size_t i = 0; i < module.methods.size(); ++i) {
    const MethodRow &a = module.methods[i], &b = by_hand.methods[i];
    EXPECT_LT(relative_error(a.hypergradient.value, b.hypergradient.value), 1e-8) << a.name;
    EXPECT_EQ(a.hypergradient.status, b.hypergradient.status) << a.name;
    EXPECT_EQ(a.trusted, b.trusted) << a.name;
    const bool unrolled =
        a.name.starts_with("reverse") || a.name == "forward" || a.name == "general-backward";
    if (unrolled) {
      EXPECT_LT(a.error_unrolled, 1e-10) << a.name;
    }
    if (a.name == "exact") {
      EXPECT_LT(a.error_implicit, 1e-10);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryModule,
                         ::testing::Values(ModuleCase{"sequential", sequential},
                                           ModuleCase{"custom", custom}),
                         [](const auto& param) { return param.param.name; });

std::vector<std::string> names(const Layout& layout) {
  std::vector<std::string> all;
  for (const Layout::Entry& entry : layout.entries()) all.push_back(entry.name);
  return all;
}

TEST(ModuleProblem, has_the_parameters_that_require_a_gradient_in_w) {
  EXPECT_THAT(names(*sequential().module.inner_layout()),
              ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
  EXPECT_THAT(names(*custom().module.inner_layout()), ElementsAre("gate", "layer.weight", "layer.bias"));
  EXPECT_EQ(sequential().module.inner_samples(), examples);
}

TEST(ModuleProblem, writes_to_the_module_where_it_is_told_to_and_nowhere_else) {
  torch::nn::Sequential net = small_net();
  const auto loss = [](torch::nn::Sequential& n, const Tensor& x, const Batch&) {
    return n->forward(at::ones({2, features}, doubles())).square().sum() * x.exp().sum();
  };
  const ModuleProblem problem(net, loss, loss, vec({0}));
  const Tensor start = problem.initial_inner(0), w = random_like(start, 1);
  Oracle oracle(problem);
  oracle.linearize(w, vec({0.5}), Batch{})->hessian(w);
  const auto flat = [&] {
    std::vector<Tensor> parts;
    for (const Tensor& p : net->parameters()) {
      EXPECT_TRUE(p.is_leaf() && p.requires_grad() && !p.grad().defined());
      parts.push_back(p.detach().flatten());
    }
    return at::cat(parts);
  };
  EXPECT_TRUE(at::equal(flat(), start));
  problem.write(w);
  EXPECT_TRUE(at::equal(flat(), w));
  EXPECT_TRUE(at::equal(problem.initial_inner(0), start));
}

// Batch statistics belong to the loss; what they would do to the running ones is dropped.
TEST(ModuleProblem, leaves_the_buffers_of_batch_norm_as_they_were) {
  torch::nn::BatchNorm1d norm(features);
  torch::nn::Sequential net(torch::nn::Linear(features, features), norm);
  net->to(at::kDouble);
  const Tensor inputs = Random(3).normal({examples, features}, doubles());
  const auto loss = [&](torch::nn::Sequential& n, const Tensor& x, const Batch&) {
    return (n->forward(inputs) - 1).pow(4).mean() * x.exp().sum();
  };
  const ModuleProblem problem(net, loss, loss, vec({0}));
  const Tensor w = random_like(problem.initial_inner(0), 1), x = vec({0});
  const Tensor mean = norm->running_mean.clone(), variance = norm->running_var.clone();
  const Tensor first = problem.inner_loss(w, x, Batch{});
  EXPECT_TRUE(at::equal(problem.inner_loss(w, x, Batch{}), first));
  EXPECT_TRUE(at::equal(norm->running_mean, mean));
  EXPECT_TRUE(at::equal(norm->running_var, variance));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);

  const auto parts = problem.inner_layout()->split(w);
  const Tensor z = at::linear(inputs, parts[0], parts[1]);
  const Tensor scaled = (z - z.mean(0)) / (z.var(0, /*unbiased=*/false) + 1e-5).sqrt() * parts[2] + parts[3];
  EXPECT_LT(relative_error(first, (scaled - 1).pow(4).mean()), 1e-12);
  net->eval();  // the statistics as they stand: mean 0 and variance 1
  const Tensor unscaled = z / std::sqrt(1 + 1e-5) * parts[2] + parts[3];
  EXPECT_LT(relative_error(problem.inner_loss(w, x, Batch{}), (unscaled - 1).pow(4).mean()), 1e-12);
}

// Dropout is a function of the batch's seed, and the process's own random numbers go on undisturbed.
TEST(ModuleProblem, draws_dropout_from_the_seed_of_the_batch) {
  torch::nn::Sequential net(torch::nn::Linear(features, 40), torch::nn::Dropout(0.5),
                            torch::nn::Linear(40, 1));
  net->to(at::kDouble);
  const auto loss = [](torch::nn::Sequential& n, const Tensor& x, const Batch&) {
    return n->forward(at::ones({3, features}, doubles())).square().sum() * x.exp().sum();
  };
  const ModuleProblem problem(net, loss, loss, vec({0}));
  const Tensor w = problem.initial_inner(0), x = vec({0});
  const auto at_seed = [&](uint64_t seed) { return number(problem.inner_loss(w, x, Batch{{}, seed})); };
  at::manual_seed(1);
  const Tensor expected = at::rand({3});
  at::manual_seed(1);
  const double one = at_seed(1), two = at_seed(2);
  EXPECT_TRUE(at::equal(at::rand({3}), expected));
  EXPECT_NE(one, two);
  EXPECT_EQ(at_seed(1), one);
  Oracle oracle(problem);
  const Tensor v = random_like(w, 2);
  const double along = directional_difference(
      [&](const Tensor& at) {
        return number(problem.inner_loss(at, x, Batch{{}, 2}));
      },
      w, v);
  EXPECT_NEAR(number(oracle.inner_gradient(w, x, Batch{{}, 2}).dot(v)), along, 1e-8 * std::abs(along));
}

TEST(ModuleProblem, refuses_what_is_no_problem) {
  const auto loss = [](auto&, const Tensor& x, const Batch&) { return x.sum(); };
  torch::nn::Sequential empty;
  EXPECT_THAT(message([&] { ModuleProblem(empty, loss, loss, vec({0})); }),
              HasSubstr("no parameter that requires a gradient"));
  EXPECT_THAT(message([&] { ModuleProblem(std::shared_ptr<GatedImpl>(), loss, loss, vec({0})); }),
              HasSubstr("the module is null"));
  torch::nn::Sequential net = small_net();
  EXPECT_THAT(message([&] {
                ModuleProblem(net, loss, loss, at::zeros({2, 2}, doubles()));
              }),
              HasSubstr("initial_outer must be a vector"));
  EXPECT_THAT(message([&] { ModuleProblem(net, loss, loss, vec({0}), {.inner = 0}); }),
              HasSubstr("samples = 0 and 1"));
  net[2]->to(at::kFloat);
  EXPECT_THAT(message([&] { ModuleProblem(net, loss, loss, vec({0})); }),
              AllOf(HasSubstr("parameter 2.weight is Float"), HasSubstr("0.weight is Double")));
  // A loss that does not read the module is found by the oracle.
  const ModuleProblem constant(small_net(), loss, loss, vec({0}));
  Oracle oracle(constant);
  EXPECT_THAT(message([&] { oracle.inner_gradient(constant.initial_inner(0), vec({0}), Batch{}); }),
              HasSubstr("does not depend on w"));
}

}  // namespace
}  // namespace bilevel::test
