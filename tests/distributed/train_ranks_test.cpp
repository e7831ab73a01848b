// A training and learning across tasks on ranks against one process.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bilevel/meta/blobs.h"
#include "bilevel/meta/learn.h"
#include "bilevel/meta/networks.h"
#include "bilevel/nas/synthetic_images.h"
#include "bilevel/nas/train.h"
#include "tests/distributed/ranks.h"
#include "tests/support.h"

namespace bilevel {
namespace {

using test::doubles;
using test::relative_error;

DeviceImages bytes_of_images(int64_t samples, uint64_t seed) {
  const LabelledImages images = nas::draw_images({.samples = samples, .noise = 0.7, .seed = seed}, doubles());
  return {images.images.mul(40).add(128).round().clamp(0, 255).to(at::kByte),
          images.labels,
          {128, 128, 128},
          {50, 50, 50},
          doubles()};
}

// Drops paths, has a second head and an odd batch: all that depends on an image's place in the batch.
struct SmallTraining {
  nas::SearchSpace space = nas::make_space("darts");
  nas::Network network{space,
                       nas::parse_genotype(space,
                                           "normal: (sep_conv_3x3,0)(skip_connect,1) "
                                           "(sep_conv_3x3,0)(dil_conv_3x3,1) "
                                           "(avg_pool_3x3,1)(skip_connect,0) "
                                           "(skip_connect,0)(dil_conv_3x3,2) "
                                           "reduce: (max_pool_3x3,0)(sep_conv_3x3,1) "
                                           "(skip_connect,2)(max_pool_3x3,1) "
                                           "(max_pool_3x3,0)(skip_connect,2) "
                                           "(skip_connect,2)(max_pool_3x3,1)"),
                       size()};
  nas::TrainOptions options;
  static nas::NetworkOptions size() {
    nas::NetworkOptions o{.channels = 4, .cells = 3};
    o.height = o.width = 8;
    o.auxiliary = true;
    return o;
  }
  SmallTraining() {
    options.epochs = 2;
    options.batch = 7;
    options.test_batch = 5;
    options.nesterov = true;
    options.auxiliary = 0.4;
    options.drop_path = 0.3;
    options.clip = 5;
    options.augment = {.crop_padding = 1, .flip = true, .cutout = 2};
  }
  nas::TrainState run(const nas::BatchRanks& ranks) const {
    const nas::Training training(network, bytes_of_images(35, 1), bytes_of_images(23, 2), options, ranks);
    nas::TrainState state = training.start();
    training.run(state);
    return state;
  }
};

// Where one process ends, and all ranks with the same bits.
void expect_same_end(const std::vector<nas::TrainState>& found, const nas::TrainState& expected) {
  EXPECT_LT(relative_error(found[0].inner.w, expected.inner.w), 1e-10);
  EXPECT_LT(relative_error(found[0].statistics, expected.statistics), 1e-10);
  EXPECT_TRUE(at::equal(found[0].inner.w, found[1].inner.w)) << "ranks have other bits";
  EXPECT_TRUE(at::equal(found[0].statistics, found[1].statistics));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(found[0].history[i].train_loss, expected.history[i].train_loss, 1e-10);
    EXPECT_EQ(found[0].history[i].train_accuracy, expected.history[i].train_accuracy);
    EXPECT_EQ(found[0].history[i].test_accuracy, expected.history[i].test_accuracy);
  }
}

TEST(TrainingOnRanks, ends_where_one_process_ends) {
  BILEVEL_NEEDS_GLOO();
  const SmallTraining training;
  const nas::TrainState expected = training.run({});
  for (const int size : {2, 3}) {
    std::vector<nas::TrainState> found(static_cast<size_t>(size));
    test::run_ranks(size, [&](const auto& group) {
      const nas::BatchRanks ranks = nas::divided_among(group);
      found[static_cast<size_t>(group->rank())] = training.run(ranks);
      EXPECT_GT(ranks.norms->sent().calls, 0);
    });
    expect_same_end(found, expected);
  }
}

// A training in NAS-Bench-201 has a tape, whose norms sum what ends in one node at once. Label smoothing
// too small to count leaves automatic differentiation alone.
nas::TrainState run_cell(const nas::BatchRanks& ranks, double label_smoothing = 0) {
  const nas::SearchSpace space = nas::make_space("nasbench201");
  const nas::Network network(
      space,
      nas::parse_genotype(space,
                          "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|none~1|"
                          "nor_conv_3x3~2|"),
      [] {
        nas::NetworkOptions o{.channels = 4, .cells = 1};
        o.height = o.width = 8;
        return o;
      }());
  nas::TrainOptions options = SmallTraining().options;
  options.auxiliary = options.drop_path = 0;
  options.label_smoothing = label_smoothing;
  const nas::Training training(network, bytes_of_images(35, 1), bytes_of_images(23, 2), options, ranks);
  EXPECT_EQ(training.taped(), label_smoothing == 0);
  nas::TrainState state = training.start();
  training.run(state);
  return state;
}

TEST(TrainingOnRanks, by_a_tape_ends_where_one_process_ends) {
  BILEVEL_NEEDS_GLOO();
  const nas::TrainState expected = run_cell({});
  for (const int size : {2, 3}) {
    std::vector<nas::TrainState> found(static_cast<size_t>(size));
    test::run_ranks(size, [&](const auto& group) {
      found[static_cast<size_t>(group->rank())] = run_cell(nas::divided_among(group));
    });
    expect_same_end(found, expected);
  }
}

TEST(TrainingOnRanks, with_norms_of_their_own_is_the_same_by_a_tape) {
  BILEVEL_NEEDS_GLOO();
  test::run_ranks(3, [](const auto& group) {
    const nas::BatchRanks ranks = nas::divided_among(group, /*global_norms=*/false);
    const nas::TrainState taped = run_cell(ranks);
    EXPECT_EQ(group->communication().calls, 2 * (5 + 1));
    const nas::TrainState by_graph = run_cell(ranks, 1e-300);
    EXPECT_LT(relative_error(taped.inner.w, by_graph.inner.w), 1e-10);
    EXPECT_LT(relative_error(taped.statistics, by_graph.statistics), 1e-10);
  });
}

// One sum a step, and the same state on all ranks, with norms of their own too.
TEST(TrainingOnRanks, with_norms_of_their_own_has_one_sum_a_step) {
  BILEVEL_NEEDS_GLOO();
  const SmallTraining training;
  std::vector<nas::TrainState> found(2);
  test::run_ranks(2, [&](const auto& group) {
    found[static_cast<size_t>(group->rank())] =
        training.run(nas::divided_among(group, /*global_norms=*/false));
    EXPECT_EQ(group->communication().calls, 2 * (5 + 1));  // two epochs of five steps and a test
  });
  EXPECT_TRUE(at::equal(found[0].inner.w, found[1].inner.w));
  EXPECT_TRUE(at::equal(found[0].statistics, found[1].statistics));
}

class EveryLearner : public ::testing::TestWithParam<std::string> {};

// Three ranks and four tasks, validation tasks in chunks: one rank has more of them than the others.
TEST_P(EveryLearner, learns_what_one_process_learns) {
  BILEVEL_NEEDS_GLOO();
  const meta::Blobs source({.ways = 3, .shots = 1, .queries = 4}, meta::BlobsOptions{}, 0, doubles());
  meta::LearnerOptions how = meta::default_learner_options(GetParam());
  how.terms = 3;  // far from where rounding ends a linear solve
  how.inner_steps = std::min<int64_t>(how.inner_steps, 8);
  how.truncate = std::min<int64_t>(how.truncate, 4);
  const meta::Learner learner(
      how, meta::make_network({.name = "mlp", .filters = 8}, source.input_shape(), source.outputs()),
      doubles());
  meta::LearnOptions options;
  options.iterations = 6;
  options.records = 2;
  options.valid_tasks = 7;
  options.test_tasks = 5;
  options.tasks_at_once = 2;
  const auto run = [&](ProcessGroup* group) {
    return meta::learn(learner, source, options, meta::begin_learning(learner, options), {}, group);
  };
  const meta::LearnSummary expected = run(nullptr);
  for (const int size : {2, 3, 5}) {  // of five, one has no task
    std::vector<meta::LearnSummary> found(static_cast<size_t>(size));
    test::run_ranks(size,
                    [&](const auto& group) { found[static_cast<size_t>(group->rank())] = run(group.get()); });
    const meta::LearnState &mine = found[0].state, &theirs = expected.state;
    EXPECT_LT(relative_error(mine.algorithm.x, theirs.algorithm.x), 1e-10) << size;
    EXPECT_TRUE(at::equal(mine.algorithm.x, found[1].state.algorithm.x)) << "ranks have other bits";
    EXPECT_NEAR(found[0].test.loss, expected.test.loss, 1e-9);
    EXPECT_EQ(found[0].test.accuracy, expected.test.accuracy);
    EXPECT_EQ(mine.best_iteration, theirs.best_iteration);
    EXPECT_EQ(mine.statuses, theirs.statuses);
    EXPECT_EQ(mine.counts.inner_gradient, theirs.counts.inner_gradient);
    EXPECT_EQ(mine.counts.outer_gradient, theirs.counts.outer_gradient);
    EXPECT_EQ(mine.counts.hessian, theirs.counts.hessian);
    EXPECT_EQ(mine.counts.samples, theirs.counts.samples);
  }
}
INSTANTIATE_TEST_SUITE_P(Each, EveryLearner, ::testing::ValuesIn(meta::learner_names()),
                         [](const auto& row) { return test::test_name(row.param); });

}  // namespace
}  // namespace bilevel
