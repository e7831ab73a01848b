// Both shapes of the problem: classes as tasks, and tasks with examples of their own.
#include "bilevel/problems/task_interaction.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "bilevel/core/autograd.h"
#include "bilevel/core/oracle.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/hypergradients/registry.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

double softplus(double x) { return std::log1p(std::exp(x)); }

// Three classes, which are the tasks.
TaskSets class_tasks(int64_t per_class = 4, uint64_t seed = 1) {
  Random random(seed);
  const int64_t classes = 3, features = 5;
  const Tensor means = random.normal({classes, features}, doubles());
  TaskSets sets;
  sets.tasks = sets.classes = classes;
  sets.classes_are_tasks = true;
  sets.task_names = {"a", "b", "c"};
  for (TaskExamples* set : {&sets.train, &sets.valid, &sets.test}) {
    set->labels = at::arange(classes * per_class, at::kLong).remainder(classes);
    set->features =
        means.index_select(0, set->labels) + random.normal({classes * per_class, features}, doubles());
  }
  return sets;
}

// Two classes and three tasks with 2, 5 and 3 training examples, not in order.
TaskSets uneven_tasks() {
  TaskSets sets = class_tasks(10);
  sets.classes = 2;
  sets.classes_are_tasks = false;
  for (TaskExamples* set : {&sets.train, &sets.valid, &sets.test}) {
    set->features = set->features.narrow(0, 0, 10);
    set->labels = at::tensor({0, 1, 1, 0, 1, 0, 0, 1, 1, 0}, at::kLong);
    set->tasks = at::tensor({1, 0, 2, 1, 1, 2, 1, 0, 1, 2}, at::kLong);
  }
  return sets;
}

std::vector<TaskSets> both() { return {class_tasks(), uneven_tasks()}; }

// Every loss again with plain loops.
double inner_by_hand(const TaskSets& sets, const Tensor& w, const Tensor& x, bool coupled) {
  const int64_t features = sets.train.features.size(1);
  const int64_t blocks = sets.classes_are_tasks ? 1 : sets.tasks;
  const Tensor weights = w.view({blocks, sets.classes, features});
  double loss = 0;
  for (int64_t i = 0; i < sets.train.size(); ++i) {
    const int64_t block = sets.classes_are_tasks ? 0 : sets.train.tasks[i].item<int64_t>();
    const Tensor scores = weights[block].mv(sets.train.features[i]);
    loss += value(scores.exp().sum().log() - scores[sets.train.labels[i].item<int64_t>()]);
  }
  loss *= static_cast<double>(blocks) / static_cast<double>(sets.train.size());
  const Tensor models = w.view({sets.tasks, -1});
  loss += softplus(value(x[-1])) * value(w.dot(w));
  for (int64_t i = 0; coupled && i < sets.tasks; ++i) {
    for (int64_t j = 0; j < sets.tasks; ++j) {
      const double c = softplus(value(x[i * sets.tasks + j])) + softplus(value(x[j * sets.tasks + i]));
      loss += c * value((models[i] - models[j]).pow(2).sum());
    }
  }
  return loss;
}

TEST(TaskInteraction, LossesByHand) {
  for (const TaskSets& sets : both()) {
    for (const Coupling coupling : {Coupling::learned, Coupling::none}) {
      const TaskInteraction problem(sets, {.coupling = coupling}, doubles());
      const Point point = generic_point(problem);
      EXPECT_NEAR(value(problem.inner_loss(point.w, point.x, {})),
                  inner_by_hand(sets, point.w, point.x, coupling == Coupling::learned), 1e-12);
    }
  }
}

TEST(TaskInteraction, InteractionIsSymmetricAndPositive) {
  const TaskInteraction problem(uneven_tasks(), {}, doubles());
  const Point point = generic_point(problem);
  const Tensor c = problem.interaction(point.x);
  EXPECT_TRUE(at::equal(c, c.t()));
  EXPECT_GT(value(c.min()), 0);
  EXPECT_NEAR(value(c[0][2]), softplus(value(point.x[2])) + softplus(value(point.x[6])), 1e-14);
  EXPECT_NEAR(value(problem.regularizer(point.x)[0]), softplus(value(point.x[9])), 1e-14);
  EXPECT_EQ(value(TaskInteraction(uneven_tasks(), {.coupling = Coupling::none}, doubles())
                      .interaction(point.x)
                      .abs()
                      .sum()),
            0);
}

TEST(TaskInteraction, ClosedFormsAreAutogradsForBothShapesWithAndWithoutCoupling) {
  for (const TaskSets& sets : both()) {
    for (const Coupling coupling : {Coupling::learned, Coupling::none}) {
      const TaskInteraction problem(sets, {.coupling = coupling}, doubles());
      const Point point = generic_point(problem);
      const Tensor v = random_like(point.w, 5), u = random_like(point.x, 6);
      // The second batch leaves a task of the second shape without an example.
      for (const Batch& batch : {Batch{}, Batch{at::tensor({3, 0, 1, 0}, at::kLong), 0}}) {
        const auto own = problem.linearize(point.w, point.x, batch);
        const auto reference = autograd::linearize(problem, point.w, point.x, batch);
        EXPECT_LT(relative_error(own->gradient(), reference->gradient()), 1e-12);
        EXPECT_LT(relative_error(own->hessian(v), reference->hessian(v)), 1e-12);
        EXPECT_LT(relative_error(own->gauss_newton(v), reference->hessian(v)), 1e-12);
        EXPECT_LT(relative_error(own->cross(v), reference->cross(v)), 1e-12);
        EXPECT_LT(relative_error(own->cross_transposed(u), reference->cross_transposed(u)), 1e-12);
        const OuterGradients outer = problem.outer_gradients(point.w, point.x, batch);
        const OuterGradients expected = autograd::outer_gradients(problem, point.w, point.x, batch);
        EXPECT_LT(relative_error(outer.w, expected.w), 1e-12);
        EXPECT_LT(relative_error(outer.loss, expected.loss), 1e-14);
        EXPECT_EQ(value(outer.x.abs().sum()), 0);
      }
    }
  }
}

// In single precision too, where tasks that are coupled strongly hardly differ.
TEST(TaskInteraction, CrossProductsOfNearlyEqualModelsKeepTheirDigits) {
  const TaskInteraction exact(uneven_tasks(), {}, doubles()), single(uneven_tasks(), {}, floats());
  const Tensor x = exact.initial_outer(0);
  const Tensor common = random_like(at::empty({1, 10}, doubles()), 3);
  const Tensor w = (common + 1e-3 * random_like(at::empty({3, 10}, doubles()), 4)).view({-1}).to(at::kFloat);
  const Tensor v = random_like(at::empty({30}, doubles()), 5).to(at::kFloat);
  const auto coupling = [](const Tensor& cross) { return cross.slice(0, 0, -1); };
  const Tensor expected = exact.linearize(w.to(at::kDouble), x, {})->cross(v.to(at::kDouble));
  const Tensor found = single.linearize(w, x.to(at::kFloat), {})->cross(v);
  EXPECT_LT(relative_error(coupling(found), coupling(expected)), 2e-4);
}

TEST(TaskInteraction, DiagonalOfBHasNoEffect) {
  const TaskInteraction problem(class_tasks(), {}, doubles());
  const Point point = generic_point(problem);
  const Tensor cross = problem.linearize(point.w, point.x, {})->cross(random_like(point.w, 5));
  for (const int64_t at : {0, 4, 8}) EXPECT_EQ(value(cross[at]), 0);
  EXPECT_GT(std::abs(value(cross[1])), 1e-6);
}

// Through T steps of gradient descent, softplus included: against differences of the whole objective.
TEST(TaskInteraction, ReverseModeIsTheDifferenceOfTheUnrolledObjective) {
  for (const TaskSets& sets : both()) {
    const TaskInteraction problem(sets, {}, doubles());
    const Tensor x = generic_point(problem).x, u = random_like(x, 7);
    const int64_t steps = 15;
    Oracle oracle(problem);
    const Tensor found =
        hypergradient_at(oracle, x, problem.initial_inner(0), {.steps = steps, .rate = problem.rate()},
                         *make_estimator("reverse", {}))
            .hypergradient.value;
    const Tensor expected = difference(
        [&](const Tensor& at_x) {
          return problem.outer_loss(descend(problem, problem.initial_inner(0), at_x, steps, problem.rate()),
                                    at_x, {});
        },
        x, u);
    EXPECT_LT(relative_error(found.dot(u), expected), 1e-7);
  }
}

// Solved: every estimator that goes to the end gives the same numbers.
TEST(TaskInteraction, EstimatorsAgreeAtTheSolution) {
  for (const TaskSets& sets : both()) {
    const TaskInteraction problem(sets, {.first_regularizer = 0.3, .first_coupling = 0.5}, doubles());
    const Tensor x = problem.initial_outer(0);
    const double rate = 1 / problem.smoothness_bound(x);
    Oracle oracle(problem);
    const auto by = [&](const char* name, int64_t terms) {
      EstimatorSettings settings;
      settings.terms = terms;
      settings.linear_rate = rate;
      settings.truncate = terms;
      return hypergradient_at(oracle, x, problem.initial_inner(0), {.steps = 1500, .rate = rate},
                              *make_estimator(name, settings))
          .hypergradient.value;
    };
    const Tensor exact = by("exact", 0);
    for (const auto& [name, terms] :
         {std::pair{"reverse", 0}, std::pair{"truncated", 900}, std::pair{"neumann", 900},
          std::pair{"cg", 60}, std::pair{"fixed-point", 900}}) {
      EXPECT_LT(relative_error(by(name, terms), exact), 1e-8) << name;
    }
  }
}

TEST(TaskInteraction, StrongCouplingIsThePooledModelAndWeakIsIndependent) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 4, .train = 12});
  const TaskInteraction learned(sets, {}, doubles()), alone(sets, {.coupling = Coupling::none}, doubles());
  const TaskInteraction one(pooled(sets), {.coupling = Coupling::none}, doubles());
  const double rho = 0.3, nu = std::log(std::expm1(rho));
  const auto solved = [&](const TaskInteraction& problem, double b, double rho_at) {
    Tensor x = at::full_like(problem.initial_outer(0), b);
    x = at::cat({x.slice(0, 0, -1), vector({rho_at})});
    return descend(problem, problem.initial_inner(0), x, 4000, 1 / problem.smoothness_bound(x));
  };
  const Tensor independent = solved(alone, 0, nu);
  EXPECT_LT(relative_error(solved(learned, -40, nu), independent), 1e-8);
  // Four tasks in one place carry the regulariser four times against four means of the data.
  const Tensor together = solved(learned, 20, nu).view({4, -1});
  const Tensor pool = solved(one, 0, nu);
  for (int64_t task = 0; task < 4; ++task) EXPECT_LT(relative_error(together[task], pool), 0.02);
  EXPECT_GT(relative_error(independent.view({4, -1})[0], pool), 0.2);
}

TEST(TaskInteraction, ProjectionKeepsGradientDescentStable) {
  const TaskInteraction problem(uneven_tasks(), {}, doubles());
  Tensor x = at::full_like(problem.initial_outer(0), 50.0);
  x = x + random_like(x, 3);
  const Tensor before = x.clone();
  problem.project_outer_(x);
  const double limit = 2 / problem.rate();
  const double used = value(eigenvalues(dense_hessian(problem, problem.initial_inner(0), x))[-1]);
  EXPECT_LT(used, 0.95 * limit);
  EXPECT_GT(used, 0.7 * limit);  // no further than that
  EXPECT_LE(used, problem.largest_curvature());
  EXPECT_LE(problem.smoothness_bound(x), 1.0001 * problem.largest_curvature());  // at every w
  EXPECT_GT(problem.smoothness_bound(x), 0.8 * problem.largest_curvature());
  // C keeps its proportions: the stronger pairs stay the stronger.
  const Tensor c = problem.interaction(x), old = problem.interaction(before);
  EXPECT_LT(relative_error(c / c[0][1], old / old[0][1]), 1e-9);
  Tensor inside = problem.initial_outer(0);
  problem.project_outer_(inside);
  EXPECT_TRUE(at::equal(inside, problem.initial_outer(0)));
  Tensor tiny = at::full_like(x, -200.0);
  problem.project_outer_(tiny);
  EXPECT_GT(value(problem.regularizer(tiny)[0]), 1e-8 * problem.curvature());  // not singular
}

TEST(TaskInteraction, StartHasTheCurvatureThatItSays) {
  const TaskInteraction problem(class_tasks(), {.first_regularizer = 0.2, .first_coupling = 0.3}, doubles());
  const Tensor x = problem.initial_outer(0);
  EXPECT_NEAR(2 * value(problem.regularizer(x)[0]), 0.2 * problem.curvature(), 1e-12);
  EXPECT_NEAR(4 * 3 * value(problem.interaction(x)[0][1]), 0.3 * problem.curvature(), 1e-12);
  const Tensor data_only = dense_hessian(problem, problem.initial_inner(0), at::full_like(x, -60.0));
  EXPECT_NEAR(value(eigenvalues(data_only)[-1]), problem.curvature(), 1e-3 * problem.curvature());
}

TEST(TaskInteraction, AccuracyCountsExamplesNotFilling) {
  const TaskInteraction problem(uneven_tasks(), {}, doubles());
  const Tensor w = generic_point(problem).w, models = w.view({3, 2, 5});
  int64_t right = 0;
  for (int64_t i = 0; i < 10; ++i) {
    const Tensor scores =
        models[problem.sets().test.tasks[i].item<int64_t>()].mv(problem.sets().test.features[i]);
    right += scores.argmax().item<int64_t>() == problem.sets().test.labels[i].item<int64_t>() ? 1 : 0;
  }
  EXPECT_NEAR(problem.accuracy(w, problem.sets().test), 10.0 * static_cast<double>(right), 1e-10);
}

TEST(TaskSets, ClusteredTasksAreWhatTheySay) {
  const TaskSets sets =
      draw_clustered_tasks({.tasks = 6, .clusters = 2, .features = 3, .train = 4000, .noise = 0});
  EXPECT_EQ(sets.clusters, (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(sets.train.size(), 24000);
  // The mean of the signed examples points along a task's direction.
  const Tensor sign = (2 * sets.train.labels - 1).to(at::kDouble).unsqueeze(1);
  const Tensor direction = (sign * sets.train.features).view({6, 4000, 3}).mean(1);
  const Tensor unit = direction / direction.norm(2, {1}, true);
  const Tensor cosine = unit.mm(unit.t());
  EXPECT_GT(value(cosine[0][1]), 0.97);
  EXPECT_GT(value(cosine[3][5]), 0.97);
  EXPECT_LT(value(cosine[0][3]), 0.9);
}

TEST(TaskSets, BadSetsAreRefusedWithTheTaskNamed) {
  const auto refused = [](const std::function<void(TaskSets&)>& spoil, const TaskSets& from) {
    TaskSets sets = from;
    spoil(sets);
    return [sets] { TaskInteraction(sets, {}, doubles()); };
  };
  EXPECT_THAT(refused([](TaskSets& s) { s.tasks = 1; }, uneven_tasks()),
              ThrowsMessage<std::invalid_argument>(HasSubstr("tasks = 1")));
  EXPECT_THAT(
      refused([](TaskSets& s) { s.train.tasks = at::zeros({10}, at::kLong); }, uneven_tasks()),
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("task b"), HasSubstr("no training examples"))));
  EXPECT_THAT(refused([](TaskSets& s) { s.valid.labels = at::zeros({12}, at::kLong); }, class_tasks()),
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("task b"), HasSubstr("validation"))));
  EXPECT_THAT(refused([](TaskSets& s) { s.train.labels = s.train.labels + 1; }, class_tasks()),
              ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("labels"), HasSubstr("0 to 2"))));
  EXPECT_THAT(
      refused([](TaskSets& s) { s.train.features = at::zeros_like(s.train.features); }, class_tasks()),
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("curvature of 0"), HasSubstr("zero"))));
  EXPECT_THAT([] { pooled(class_tasks()); }, ThrowsMessage<std::invalid_argument>(HasSubstr("classes")));
  EXPECT_THAT(
      [] { TaskInteraction(class_tasks(), {.first_regularizer = 0}, doubles()); },
      ThrowsMessage<std::invalid_argument>(AllOf(HasSubstr("first_regularizer = 0"), HasSubstr("singular"))));
  EXPECT_THAT([] { draw_clustered_tasks({.tasks = 3, .clusters = 4}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("clusters = 4")));
  EXPECT_THAT([] { draw_clustered_tasks({.train = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("train examples = 0")));
}

}  // namespace
}  // namespace bilevel::testing
