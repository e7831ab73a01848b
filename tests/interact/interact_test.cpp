// The job on made-up tasks, and what is read from a matrix of interactions.
#include "bilevel/interact/interact.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "bilevel/core/errors.h"
#include "bilevel/core/random.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::TensorOptions doubles() { return at::TensorOptions().dtype(at::kDouble); }

InteractOptions short_search(int64_t iterations) {
  InteractOptions options = default_interact_options();
  options.solve.iterations = iterations;
  return options;
}

TEST(Interact, TheBestPointIsTheSmallestLossWithItsOwnX) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  const TaskInteraction problem(sets, {}, doubles());
  const LearnedTasks learned = learn_tasks(problem, short_search(30));
  double smallest = std::numeric_limits<double>::infinity();
  for (const SolveRecord& record : learned.summary.records) smallest = std::min(smallest, record.outer_loss);
  EXPECT_EQ(learned.summary.records.size(), 31U);
  EXPECT_EQ(learned.valid_loss, smallest);
  // w is what T steps from the start give at that x, not at the x of the next iteration.
  Tensor w = problem.initial_inner(0);
  for (int64_t t = 0; t < 100; ++t) w = w - problem.rate() * problem.inner_gradient(w, learned.x, {});
  EXPECT_LT((w - learned.w).norm().item<double>(), 1e-10 * w.norm().item<double>());
  EXPECT_TRUE(at::equal(learned.interaction, problem.interaction(learned.x)));
}

// F2SA's and BOME's own w is partly trained on the validation examples that select it.
TEST(Interact, TheSelectedModelsAreTrainedOnTrainingExamplesAlone) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  const TaskInteraction problem(sets, {}, doubles());
  for (const char* algorithm : {"f2sa", "bome"}) {
    InteractOptions options = short_search(40);
    options.algorithm = algorithm;
    options.settings.outer.rate = 0.01;
    options.settings.joint_rate = problem.rate();
    const LearnedTasks learned = learn_tasks(problem, options);
    ASSERT_FALSE(ended_badly(learned.summary.reason)) << learned.summary.message;
    Tensor w = problem.initial_inner(0);
    const double first = problem.inner_gradient(w, learned.x, {}).norm().item<double>();
    EXPECT_LT(problem.inner_gradient(learned.w, learned.x, {}).norm().item<double>(), 1e-3 * first)
        << algorithm;
    EXPECT_GT(problem.inner_gradient(learned.summary.state.inner.w, learned.summary.state.x, {})
                  .norm()
                  .item<double>(),
              3e-3 * first)
        << algorithm;
    EXPECT_EQ(learned.valid_loss, problem.outer_loss(learned.w, learned.x, {}).item<double>());
  }
}

// A search that does worse than no interaction at all is not what anybody wants to be handed.
TEST(Interact, ABaselineThatIsBetterIsReturned) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  InteractOptions options = short_search(1);  // C and rho stay near where they begin
  options.problem.first_coupling = 4;
  InteractResult found = interact(sets, options, doubles());
  ASSERT_TRUE(found.independent && found.pooled);
  const double least = std::min(found.independent->valid_loss, found.pooled->valid_loss);
  ASSERT_LT(least, found.learned.valid_loss);
  EXPECT_EQ(found.returned().valid_loss, least);
  ASSERT_EQ(found.warnings.size(), 1U);
  EXPECT_THAT(found.warnings[0],
              AllOf(HasSubstr("does not beat"), HasSubstr(std::string(name_of(found.best)))));
  options = short_search(60);
  found = interact(sets, options, doubles());
  EXPECT_EQ(found.best, InteractResult::Best::learned);
  EXPECT_LT(found.learned.valid_loss, found.independent->valid_loss);
  EXPECT_TRUE(found.warnings.empty());
}

TEST(Interact, PatienceEndsTheSearchAndKeepsTheBest) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  InteractOptions options = short_search(400);
  options.settings.outer.rate = 2;  // far too large: it soon overshoots
  options.patience = 7;
  const LearnedTasks learned = learn_tasks({sets, {}, doubles()}, options);
  EXPECT_EQ(learned.summary.reason, StopReason::stopped);
  EXPECT_EQ(learned.summary.state.iteration, learned.best_iteration + 7);
}

// The x of the record before is not where a repaired iteration begins.
TEST(Interact, TheBestPointHasItsOwnXAfterARepair) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  const TaskInteraction problem(sets, {}, doubles());
  const Tensor first = problem.initial_outer(0), far = first + 1, last = first + 2;
  const Solver repaired = [&](const Problem&, const Algorithm&, const SolveOptions&, const SolveHooks& hooks,
                              BestPoint&) {
    AlgorithmState state;
    state.inner.w = problem.initial_inner(0);
    const auto record = [&](int64_t iteration, const Tensor& x, double loss) {
      state.x = x;
      SolveRecord made;
      made.iteration = iteration;
      made.outer_loss = loss;
      made.w = state.inner.w;
      EXPECT_TRUE(hooks.record(made, state));
    };
    record(0, first, 3);
    record(1, far, 2);
    state.x = first;
    hooks.went_back(state);
    record(2, last, 1);
    return SolveSummary();
  };
  const LearnedTasks learned = learn_tasks(problem, short_search(2), {}, repaired);
  EXPECT_EQ(learned.best_iteration, 2);
  EXPECT_TRUE(at::equal(learned.x, first));
}

// One that fails is left out, and said to be.
TEST(Interact, BaselinesThatEndBadlyAreNotUsed) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  const InteractOptions sound = short_search(2);
  InteractOptions options = sound;
  options.settings.inner.rate = 1e5 * TaskInteraction(sets, {}, doubles()).rate();
  const Solver sound_one = [&](const Problem& problem, const Algorithm&, const SolveOptions& few,
                               const SolveHooks& hooks, BestPoint&) {
    AlgorithmSettings settings = sound.settings;
    settings.inner.rate = TaskInteraction(sets, {}, doubles()).rate();
    SolveOptions watched = few;
    watched.settings = settings;
    return solve(problem, *make_algorithm(sound.algorithm, settings), watched, hooks);
  };
  const InteractResult found = interact(sets, options, doubles(), {}, {}, sound_one);
  EXPECT_EQ(found.learned.summary.reason, StopReason::iterations) << found.learned.summary.message;
  EXPECT_FALSE(found.independent.has_value());
  EXPECT_FALSE(found.pooled.has_value());
  ASSERT_EQ(found.warnings.size(), 2U);
  EXPECT_THAT(found.warnings[0], AllOf(HasSubstr("every task on its own"), HasSubstr("take --inner-rate")));
  // The search itself has its failure in its summary.
  const InteractResult failed = interact(sets, options, doubles());
  EXPECT_TRUE(ended_badly(failed.learned.summary.reason));
  EXPECT_EQ(failed.learned.summary.failures.size(), 1U);
  EXPECT_FALSE(failed.independent.has_value());
}

TEST(Interact, BaselinesHaveNoInteraction) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  const InteractResult found = interact(sets, short_search(10), doubles());
  ASSERT_TRUE(found.independent.has_value());
  EXPECT_EQ(found.independent->interaction.abs().sum().item<double>(), 0);
  EXPECT_EQ(found.independent->x.numel(), 1);
  ASSERT_TRUE(found.pooled.has_value());
  EXPECT_EQ(found.pooled->w.numel(), 10);
  EXPECT_EQ(found.learned.w.numel(), 40);
}

TEST(Interact, BadOptionsAreNamed) {
  InteractOptions options = short_search(1);
  options.patience = -1;
  const TaskSets sets = draw_clustered_tasks({.tasks = 2, .clusters = 1});
  EXPECT_THAT([&] { interact(sets, options, doubles()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("patience = -1")));
}

// Three blocks with noise, and the tasks of a block not side by side.
Tensor blocks(const std::vector<int64_t>& cluster, double within, double across) {
  const auto n = static_cast<int64_t>(cluster.size());
  Random random(4);
  Tensor c = at::zeros({n, n}, doubles());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      const double level =
          cluster[static_cast<size_t>(i)] == cluster[static_cast<size_t>(j)] ? within : across;
      const double value = level * (0.7 + 0.6 * random.uniform());
      c[i][j] = value;
      c[j][i] = value;
    }
  }
  return c;
}

TEST(Interact, ClustersOfABlockMatrixAreFound) {
  const std::vector<int64_t> truth{0, 1, 0, 2, 2, 1, 0, 2, 1};
  EXPECT_EQ(suggest_clusters(blocks(truth, 1, 0.1)), truth);
  EXPECT_EQ(suggest_clusters(blocks(truth, 1e-3, 1e-9)), truth);  // whatever the scale
  const std::vector<int64_t> one(9, 0);
  EXPECT_EQ(suggest_clusters(blocks(one, 1, 1)), one);
}

TEST(Interact, ClusterMeansLeaveTheDiagonalOut) {
  const Tensor c = at::tensor({9., 1., 2., 1., 9., 4., 2., 4., 9.}, doubles()).view({3, 3});
  const ClusterMeans means = cluster_means(c, {0, 0, 1});
  EXPECT_DOUBLE_EQ(means.within, 1);
  EXPECT_DOUBLE_EQ(means.across, 3);
  EXPECT_TRUE(std::isnan(cluster_means(c, {0, 1, 2}).within));
}

TEST(Interact, RandIndexCountsPairs) {
  EXPECT_DOUBLE_EQ(rand_index({0, 0, 1}, {5, 5, 2}), 100);
  EXPECT_DOUBLE_EQ(rand_index({0, 0, 1}, {0, 1, 1}), 100.0 / 3);
}

}  // namespace
}  // namespace bilevel::test
