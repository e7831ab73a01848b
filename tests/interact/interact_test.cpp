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

TEST(Interact, PatienceEndsTheSearchAndKeepsTheBest) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  InteractOptions options = short_search(400);
  options.settings.outer.rate = 2;  // far too large: it soon overshoots
  options.patience = 7;
  const LearnedTasks learned = learn_tasks({sets, {}, doubles()}, options);
  EXPECT_EQ(learned.summary.reason, StopReason::stopped);
  EXPECT_EQ(learned.summary.state.iteration, learned.best_iteration + 7);
}

TEST(Interact, BaselinesHaveNoInteraction) {
  const TaskSets sets = draw_clustered_tasks({.tasks = 4, .clusters = 2, .features = 5});
  const InteractReport report = interact(sets, short_search(10), doubles());
  ASSERT_TRUE(report.independent.has_value());
  EXPECT_EQ(report.independent->interaction.abs().sum().item<double>(), 0);
  EXPECT_EQ(report.independent->x.numel(), 1);
  ASSERT_TRUE(report.pooled.has_value());
  EXPECT_EQ(report.pooled->w.numel(), 10);
  EXPECT_EQ(report.learned.w.numel(), 40);
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
