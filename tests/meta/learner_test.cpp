// Every learner's hypergradient: against finite differences of what it says it differentiates, and tasks
// together against tasks one after another.
#include "bilevel/meta/learner.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "bilevel/core/random.h"
#include "bilevel/meta/networks.h"
#include "bilevel/meta/task_loss.h"
#include "tests/meta/small_tasks.h"

namespace bilevel::meta {
namespace {

LearnerOptions small_options(const std::string& name) {
  LearnerOptions o = default_learner_options(name);
  o.inner_steps = 4;
  o.truncate = 0;
  o.inner_rate = 0.3;
  o.curvature = "hessian";
  if (name == "aid") {  // solved, so that the implicit derivative is that of the solution
    o.ridge = 0.1;
    o.inner_steps = 400;
    o.inner_rate = 0.4;
    o.terms = 200;
    o.tolerance = 1e-13;
  }
  if (name == "imaml") {
    // Strong enough that the solution stays on the start's side of the ReLUs' kinks, where it is smooth in x.
    o.proximal = 40;
    o.inner_steps = 100;
    o.inner_rate = 0.02;
    o.terms = 300;
    o.tolerance = 1e-13;
  }
  return o;
}

double outer_loss(const Learner& learner, const Tensor& x, const TaskBatch& tasks) {
  return task_losses(learner.outputs(x, tasks), tasks.valid_targets).mean().item<double>();
}

void expect_finite_differences(const Learner& learner, const Tensor& x, const TaskBatch& tasks,
                               double tolerance) {
  const Hypergradient found = learner.hypergradient(x, tasks);
  ASSERT_EQ(found.value.sizes(), x.sizes());
  EXPECT_NEAR(found.outer_loss.item<double>(), outer_loss(learner, x, tasks), 1e-12);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Tensor u = Random(seed).normal({x.size(0)}, at::kDouble);
    u = u / u.norm();
    const double h = 1e-6;
    const double difference =
        (outer_loss(learner, x + h * u, tasks) - outer_loss(learner, x - h * u, tasks)) / (2 * h);
    const double product = found.value.dot(u).item<double>();
    EXPECT_NEAR(product, difference, tolerance * found.value.norm().item<double>()) << "direction " << seed;
  }
}

class Learners : public testing::TestWithParam<std::string> {};
class Derivatives : public testing::TestWithParam<std::string> {};  // first-order MAML is none

TEST_P(Derivatives, on_points_against_finite_differences) {
  const Network network = make_network({.name = "mlp", .filters = 6}, {4}, 3);
  const Learner learner(small_options(GetParam()), network, at::kDouble);
  const Tensor x = learner.initial_outer(3);
  expect_finite_differences(learner, x, small_tasks(2, {4}), 2e-6);
}

TEST_P(Derivatives, on_numbers_against_finite_differences) {
  const Network network = make_network({.name = "mlp", .filters = 5}, {2}, 1);
  LearnerOptions options = small_options(GetParam());
  options.inner_rate = options.name == "imaml" ? 0.003 : 0.05;  // squares of dense layers are steeper
  if (options.name == "imaml") options.proximal = 200;
  if (options.name == "aid") options.inner_steps = 3000;
  const Learner learner(options, network, at::kDouble);
  expect_finite_differences(learner, 0.5 * learner.initial_outer(3), small_regression(2), 2e-6);
}

TEST_P(Learners, on_images_together_as_one_after_another) {
  for (const char* name : {"omniglot", "conv4"}) {
    const Network network = make_network({.name = name, .filters = 4}, {1, 16, 16}, 3);
    LearnerOptions options = small_options(GetParam());
    options.inner_steps = 5;
    options.terms = 6;
    options.tolerance = 0;
    if (options.name == "hyper-representation" || options.name == "itd") options.truncate = 3;
    const Learner learner(options, network, at::kDouble);
    const Tensor x = learner.initial_outer(4);
    const TaskBatch tasks = small_tasks(4, {1, 16, 16});
    const Tensor together = learner.hypergradient(x, tasks).value;
    const Tensor outputs = learner.outputs(x, tasks);
    Tensor sum = at::zeros_like(x);
    for (int64_t i = 0; i < 4; ++i) {
      sum = sum + learner.hypergradient(x, one_of(tasks, i)).value;
      EXPECT_LT(relative_distance(outputs[i], learner.outputs(x, one_of(tasks, i))[0]), 1e-10) << name;
    }
    EXPECT_LT(relative_distance(together, sum / 4), 1e-9) << name;
    EXPECT_TRUE(together.equal(learner.hypergradient(x, tasks).value)) << "other bits the second time";
  }
}
std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, Learners, testing::ValuesIn(learner_names()), test_name);
INSTANTIATE_TEST_SUITE_P(All, Derivatives,
                         testing::Values("aid", "itd", "anil", "maml", "imaml", "hyper-representation"),
                         test_name);

TEST(HyperRepresentation, on_images_against_finite_differences) {
  const Network network = make_network({.name = "omniglot", .filters = 3}, {1, 16, 16}, 3);
  const Learner learner(small_options("hyper-representation"), network, at::kDouble);
  expect_finite_differences(learner, learner.initial_outer(3), small_tasks(2, {1, 16, 16}), 1e-5);
}

TEST(HyperRepresentation, x_has_the_papers_size) {
  const Network network = make_network({.name = "omniglot", .filters = 64}, {1, 28, 28}, 5);
  const Learner learner(default_learner_options("hyper-representation"), network, at::kFloat);
  EXPECT_EQ(learner.outer_layout().size(), 111753);
  EXPECT_EQ(learner.task_parameters(), 74181);
  EXPECT_EQ(learner.initial_outer(0).size(0), 111753);
}

TEST(HyperRepresentation, truncation_at_the_horizon_is_none) {
  const Network network = make_network({.name = "omniglot", .filters = 3}, {1, 16, 16}, 3);
  LearnerOptions options = small_options("hyper-representation");
  const TaskBatch tasks = small_tasks(2, {1, 16, 16});
  const auto value = [&](int64_t truncate) {
    options.truncate = truncate;
    const Learner learner(options, network, at::kDouble);
    return learner.hypergradient(learner.initial_outer(3), tasks).value;
  };
  EXPECT_TRUE(value(4).equal(value(0)));
  EXPECT_GT(relative_distance(value(3), value(0)), 1e-6);
}

// docs/mathematics.md: implicit at the solution, and unrolled steps that reach it, agree.
TEST(AidAndItd, agree_where_the_heads_are_solved) {
  const Network network = make_network({.name = "mlp", .filters = 8}, {4}, 3);
  const TaskBatch tasks = small_tasks(5, {4});
  LearnerOptions aid = small_options("aid");
  LearnerOptions itd = small_options("itd");
  itd.ridge = aid.ridge;
  itd.inner_rate = aid.inner_rate;
  itd.inner_steps = aid.inner_steps = 1000;
  const Learner implicit(aid, network, at::kDouble), unrolled(itd, network, at::kDouble);
  const Tensor x = implicit.initial_outer(2);
  const Hypergradient a = implicit.hypergradient(x, tasks);
  EXPECT_EQ(a.status, Status::converged);
  EXPECT_LT(relative_distance(a.value, unrolled.hypergradient(x, tasks).value), 1e-6);
}

TEST(FirstOrder, is_the_gradient_at_the_end_of_the_steps) {
  const Network network = make_network({.name = "mlp", .filters = 6}, {4}, 3);
  const TaskBatch tasks = small_tasks(2, {4});
  LearnerOptions options = small_options("maml-first-order");
  const Learner first(options, network, at::kDouble);
  options.name = "maml";
  const Learner second(options, network, at::kDouble);
  options.inner_steps = 0;
  const Learner none(options, network, at::kDouble);
  const Tensor x = first.initial_outer(3);
  EXPECT_GT(relative_distance(first.hypergradient(x, tasks).value, second.hypergradient(x, tasks).value),
            1e-3);
  options.name = "maml-first-order";
  const Learner first_none(options, network, at::kDouble);
  EXPECT_LT(relative_distance(first_none.hypergradient(x, tasks).value, none.hypergradient(x, tasks).value),
            1e-12);
  EXPECT_EQ(first.hypergradient(x, tasks).counts.hessian, 0);
}

// Where a network's Hessian is indefinite, the Gauss-Newton matrix with the proximal term is not; both are
// the same for a linear model.
TEST(Imaml, gauss_newton_is_the_hessian_of_a_linear_model) {
  const Network network({4}, {{Layer::Kind::linear, 3}});
  LearnerOptions options = small_options("imaml");
  const TaskBatch tasks = small_tasks(3, {4});
  const Learner by_hessian(options, network, at::kDouble);
  options.curvature = "gauss-newton";
  const Learner by_gauss_newton(options, network, at::kDouble);
  const Tensor x = by_hessian.initial_outer(3);
  const Hypergradient found = by_gauss_newton.hypergradient(x, tasks);
  EXPECT_EQ(found.status, Status::converged);
  EXPECT_LT(relative_distance(found.value, by_hessian.hypergradient(x, tasks).value), 1e-10);
}

TEST(LearnerOptions, misuse_is_named) {
  LearnerOptions options = default_learner_options("aid");
  options.ridge = 0;
  EXPECT_THROW(options.validate(), std::invalid_argument);
  options = default_learner_options("maml");
  options.truncate = 2;
  EXPECT_THROW(options.validate(), std::invalid_argument);
  EXPECT_THROW(default_learner_options("reptile"), std::invalid_argument);
}

}  // namespace
}  // namespace bilevel::meta
