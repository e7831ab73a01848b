// The learning loop: it learns, gives the same bits again, and goes on from a file as if it had not stopped.
#include "bilevel/meta/learn.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "bilevel/core/errors.h"
#include "bilevel/meta/blobs.h"
#include "bilevel/meta/learn_checkpoint.h"
#include "bilevel/meta/networks.h"
#include "bilevel/meta/sinusoids.h"
#include "tests/support.h"

namespace bilevel::meta {
namespace {

Blobs blobs() { return {TaskShape{.ways = 5, .shots = 1, .queries = 5}, BlobsOptions{}, 0, test::floats()}; }

Learner learner_for(const TaskSource& source, const LearnerOptions& options) {
  return {options, make_network({.name = "mlp", .filters = 32}, source.input_shape(), source.outputs()),
          test::floats()};
}

LearnOptions few_iterations() {
  LearnOptions o;
  o.iterations = 12;
  o.records = 3;
  o.valid_tasks = 4;
  o.test_tasks = 6;
  o.tasks_at_once = 4;
  return o;
}

std::string temporary(const char* name) { return testing::TempDir() + name + std::to_string(::getpid()); }

class LearnLoop : public testing::TestWithParam<std::string> {};

TEST_P(LearnLoop, goes_on_from_any_iteration_to_the_same_bits) {
  const Blobs source = blobs();
  const Learner learner = learner_for(source, default_learner_options(GetParam()));
  const LearnOptions options = few_iterations();
  const LearnSummary whole = learn(learner, source, options, begin_learning(learner, options));
  ASSERT_EQ(whole.end, LearnEnd::iterations_done);
  ASSERT_EQ(whole.state.history.size(), 4);

  const std::string path = temporary("learn");
  LearnHooks stop;
  int64_t steps = 0;
  stop.step = [&](const LearnState&) { ++steps; };
  stop.interrupted = [&] { return steps == 7; };
  stop.save = [&](const LearnState& state) {
    Checkpoint checkpoint;
    put_learning(checkpoint, state);
    save_checkpoint(path, checkpoint);
  };
  const LearnSummary part = learn(learner, source, options, begin_learning(learner, options), stop);
  EXPECT_EQ(part.end, LearnEnd::interrupted);
  EXPECT_EQ(part.test.tasks, 0);

  const LearnState resumed = learn_state(load_checkpoint(path), learner.outer_layout().size(), c10::kCPU);
  EXPECT_EQ(resumed.algorithm.iteration, 7);
  const LearnSummary rest = learn(learner, source, options, resumed);
  EXPECT_TRUE(rest.state.algorithm.x.equal(whole.state.algorithm.x));
  EXPECT_EQ(rest.test.accuracy, whole.test.accuracy);
  EXPECT_EQ(rest.state.counts.hessian, whole.state.counts.hessian);
  ASSERT_EQ(rest.state.history.size(), 4);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rest.state.history[i].valid.accuracy, whole.state.history[i].valid.accuracy);
    EXPECT_EQ(rest.state.history[i].iteration, static_cast<int64_t>(4 * i));
  }
  EXPECT_EQ(rest.state.history[2].outer_loss, whole.state.history[2].outer_loss);
  EXPECT_THROW(learn_state(load_checkpoint(path), 3, c10::kCPU), std::runtime_error);
}
INSTANTIATE_TEST_SUITE_P(All, LearnLoop, testing::ValuesIn(learner_names()), [](const auto& i) {
  std::string name = i.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

// A checkpoint that was written after the step and before the look, as one is that a killed process leaves.
TEST(Learn, a_look_that_was_cut_off_comes_again) {
  const Blobs source = blobs();
  const Learner learner = learner_for(source, default_learner_options("aid"));
  const LearnOptions options = few_iterations();
  for (const int64_t cut : {4, 12}) {
    LearnState before;
    LearnHooks hooks;
    hooks.step = [&](const LearnState& state) {
      if (state.algorithm.iteration == cut) before = state;
    };
    const LearnSummary whole = learn(learner, source, options, begin_learning(learner, options), hooks);
    const LearnSummary rest = learn(learner, source, options, before);
    ASSERT_EQ(rest.state.history.size(), whole.state.history.size()) << cut;
    for (size_t i = 1; i < whole.state.history.size(); ++i) {
      EXPECT_EQ(rest.state.history[i].iteration, whole.state.history[i].iteration) << cut;
      EXPECT_EQ(rest.state.history[i].outer_loss, whole.state.history[i].outer_loss) << cut;
      EXPECT_EQ(rest.state.history[i].valid.loss, whole.state.history[i].valid.loss) << cut;
    }
  }
}

TEST(Learn, aid_rises_above_what_it_began_with) {
  const Blobs source = blobs();
  const Learner learner = learner_for(source, default_learner_options("aid"));
  LearnOptions options = few_iterations();
  options.iterations = 60;
  options.meta_batch = 8;
  options.outer.rate = 0.005;
  options.valid_tasks = 60;
  const LearnSummary summary = learn(learner, source, options, begin_learning(learner, options));
  EXPECT_GT(summary.state.history.back().valid.accuracy, summary.state.history.front().valid.accuracy + 8);
  EXPECT_LT(summary.state.history.back().outer_loss, summary.state.history[1].outer_loss);
}

// An outer rate that throws x far away: the last model is worse than an earlier one.
TEST(Learn, keeps_the_best_model_of_its_validation_tasks) {
  const Blobs source = blobs();
  const Learner learner = learner_for(source, default_learner_options("itd"));
  LearnOptions options = few_iterations();
  options.outer.rate = 1;
  options.valid_tasks = 40;
  const LearnSummary summary = learn(learner, source, options, begin_learning(learner, options));
  const LearnState& state = summary.state;
  const auto best = std::max_element(
      state.history.begin(), state.history.end(),
      [](const LearnRecord& a, const LearnRecord& b) { return a.valid.accuracy < b.valid.accuracy; });
  ASSERT_GT(best->valid.accuracy, state.history.back().valid.accuracy) << "the test says nothing";
  EXPECT_EQ(state.best_iteration, best->iteration);
  EXPECT_EQ(state.best_valid.accuracy, best->valid.accuracy);
  const auto score = [&](const Tensor& x, Part part, int64_t tasks) {
    return score_tasks(learner, source, x, part, tasks, options.tasks_at_once, state.best_iteration).accuracy;
  };
  EXPECT_EQ(score(state.best_x, Part::valid, options.valid_tasks), best->valid.accuracy);
  EXPECT_EQ(score(state.best_x, Part::test, options.test_tasks), summary.test.accuracy);
  Checkpoint checkpoint;
  put_learning(checkpoint, state);
  const LearnState stored = learn_state(checkpoint, learner.outer_layout().size(), at::Device(at::kCPU));
  EXPECT_TRUE(stored.best_x.equal(state.best_x));
  EXPECT_EQ(stored.best_iteration, state.best_iteration);
  EXPECT_EQ(stored.best_valid.accuracy, state.best_valid.accuracy);
}

TEST(Learn, maml_learns_sinusoids) {
  const Sinusoids source({.ways = 2, .shots = 10, .queries = 10}, {}, 0, test::floats());
  LearnerOptions maml = default_learner_options("maml");
  maml.inner_rate = 0.01;
  maml.inner_steps = 1;
  const Learner learner = learner_for(source, maml);
  LearnOptions options = few_iterations();
  options.iterations = 60;
  options.valid_tasks = 40;
  const LearnSummary summary = learn(learner, source, options, begin_learning(learner, options));
  EXPECT_LT(summary.state.history.back().valid.loss, 0.95 * summary.state.history.front().valid.loss);
  EXPECT_TRUE(std::isnan(summary.test.accuracy));
}

TEST(Learn, a_score_is_the_mean_with_its_interval) {
  const Blobs source = blobs();
  const Learner learner = learner_for(source, default_learner_options("itd"));
  const Tensor x = learner.initial_outer(0);
  const TaskScore together = score_tasks(learner, source, x, Part::test, 8, 8, 0);
  const TaskScore apart = score_tasks(learner, source, x, Part::test, 8, 3, 0);
  EXPECT_NEAR(together.accuracy, apart.accuracy, 1e-9);
  EXPECT_NEAR(together.loss, apart.loss, 1e-5);
  EXPECT_GT(together.accuracy_interval, 0);
  EXPECT_TRUE(std::isnan(score_tasks(learner, source, x, Part::test, 1, 3, 0).accuracy_interval));
}

TEST(Learn, numbers_that_end_stop_the_run_with_their_cause) {
  const Sinusoids source({.ways = 2, .shots = 10, .queries = 10}, {}, 0, test::floats());
  LearnerOptions maml = default_learner_options("maml");
  maml.inner_rate = 1e4;
  maml.inner_steps = 30;
  const Learner learner = learner_for(source, maml);
  const LearnOptions options = few_iterations();
  try {
    learn(learner, source, options, begin_learning(learner, options));
    FAIL() << "no error";
  } catch (const NotFiniteError& error) {
    EXPECT_NE(std::string(error.what()).find("inner rate"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace bilevel::meta
