// The job `interact` as a C++ program calls it: on made-up tasks and on tasks in memory, with a folder and
// without.
#include "bilevel/jobs/interact.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <string>

#include "bilevel/core/random.h"
#include "bilevel/data/npy.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/run/run_folder.h"
#include "tests/jobs/example_files.h"

namespace bilevel::test {
namespace {

InteractJobOptions interact_options() {
  InteractJobOptions options;
  options.compute.threads = 1;
  options.algorithm.solve.iterations = 5;
  options.algorithm.settings.inner.steps = 20;
  return options;
}

ClusteredTasksOptions four_tasks() {
  return {.tasks = 4, .clusters = 2, .features = 6, .test = 30, .seed = 2};
}

InteractJobOptions on_made_up_tasks() {
  InteractJobOptions options = interact_options();
  options.synthetic = four_tasks();
  options.algorithm.solve.seed = 2;
  return options;
}

std::string interact_refusal(const InteractJobOptions& options) {
  RunContext context;
  try {
    run_interact(options, context);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(InteractJob, MadeUpTasksAndTheSameInMemoryGiveTheSameBits) {
  InteractJobOptions in_memory = interact_options();
  in_memory.algorithm.solve.seed = 2;
  RunContext first, second;
  const InteractJobResult drawn = run_interact(on_made_up_tasks(), first);
  const InteractJobResult given = run_interact(in_memory, draw_clustered_tasks(four_tasks()), second);
  EXPECT_EQ(drawn.interact.learned.summary.state.iteration, 5);
  EXPECT_TRUE(drawn.interact.learned.interaction.equal(given.interact.learned.interaction));
  EXPECT_EQ(drawn.interact.learned.valid_loss, given.interact.learned.valid_loss);
  EXPECT_EQ(drawn.json.at("rand_index"), given.rand_index);
  EXPECT_EQ(drawn.data, "synthetic");
  EXPECT_FALSE(first.has_folder());
  EXPECT_FALSE(drawn.json.contains("folder"));

  in_memory.synthetic.tasks = 5;
  RunContext third;
  EXPECT_THROW(run_interact(in_memory, draw_clustered_tasks(four_tasks()), third), OptionError);
}

TEST(InteractJob, WhatDoesNotGoTogetherIsRefused) {
  InteractJobOptions options = on_made_up_tasks();
  options.files.train.examples.features = "train.csv";
  EXPECT_EQ(interact_refusal(options),
            "tasks, clusters, features, test_examples: applies to made-up tasks only; the files of train are "
            "used as they "
            "are");
  options = interact_options();
  options.files.bias = true;
  EXPECT_EQ(interact_refusal(options), "bias: train is missing");
  options = interact_options();
  options.files.train = {{"train.csv", ""}, "tasks.npy"};
  options.files.test = {{"test.csv", ""}, ""};
  EXPECT_EQ(interact_refusal(options), "train_tasks and test_tasks belong together: give test_tasks too");
}

TEST(InteractJob, AnInterruptedRunGoesOnToTheSameBits) {
  const TemporaryFolder folder;
  RunContext alone;
  const InteractJobResult whole = run_interact(on_made_up_tasks(), alone);
  const InteractJobResult stopped = until_interrupted(
      folder / "run", 4, [&](RunContext& context) { return run_interact(on_made_up_tasks(), context); });
  EXPECT_EQ(stopped.end.status, RunStatus::interrupted);
  EXPECT_EQ(read_run(folder / "run").status, RunStatus::interrupted);
  RunContext second({.keep = true, .resume = folder / "run"}, {});
  const InteractJobResult resumed = run_interact(on_made_up_tasks(), second);
  EXPECT_EQ(resumed.end.status, RunStatus::finished);
  EXPECT_TRUE(resumed.interact.learned.interaction.equal(whole.interact.learned.interaction));
  EXPECT_EQ(resumed.json.at("folder"), folder / "run");
  EXPECT_TRUE(read_npy(folder / "run/interaction.npy").equal(whole.interact.learned.interaction));
}

// Two groups of shops that want opposite things, in units of their own.
TaskSets shops(int64_t rows_each, uint64_t seed) {
  Random random(seed);
  const auto draw = [&](int64_t count) {
    TaskExamples examples;
    examples.tasks = at::arange(count).remainder(4);
    const Tensor x = random.normal({count, 3}, at::TensorOptions().dtype(at::kDouble));
    const Tensor side = 1 - 2 * examples.tasks.gt(1).to(at::kDouble);
    const Tensor score = 2 * side * x.select(1, 0) + 0.5 * random.normal({count}, x.options());
    examples.labels = score.gt(0).to(at::kLong);
    examples.features = x * at::tensor({1e-3, 1e4, 1.0}, at::kDouble) + 5;
    return examples;
  };
  TaskSets sets;
  sets.train = draw(4 * rows_each);
  sets.test = draw(400);
  sets.tasks = 4;
  sets.classes = 2;
  sets.task_names = {"a", "b", "c", "d"};
  return sets;
}

TEST(InteractJob, TasksWithoutARateAreLearnedByHeldOutRows) {
  const TaskSets sets = shops(30, 1);
  RunContext context, again;
  InteractJobOptions options;
  options.compute.threads = 1;
  const InteractJobResult result = run_interact(options, sets, context);
  EXPECT_EQ(result.by, "held-out");
  ASSERT_TRUE(result.table);
  const InteractTableResult table = interact_table({.train = {sets.train.features, sets.train.labels},
                                                    .valid = {},
                                                    .task = sets.train.tasks,
                                                    .valid_task = {},
                                                    .tasks = 4,
                                                    .classes = 2},
                                                   {});
  EXPECT_TRUE(result.interact.learned.interaction.equal(table.learned.coupling));
  EXPECT_TRUE(result.interact.learned.w.equal(table.learned.weights.mT()));
  // The test rows by hand, in the user's units.
  const Tensor& w = result.interact.returned().w;
  int64_t right = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const Tensor x = at::cat({sets.test.features[i], at::ones({1}, at::kDouble)});
    const Tensor scores = w[sets.test.tasks[i].item<int64_t>()].mv(x);
    right += scores.argmax().item<int64_t>() == sets.test.labels[i].item<int64_t>() ? 1 : 0;
  }
  EXPECT_NEAR(result.interact.returned().test_accuracy, 0.25 * static_cast<double>(right), 1e-9);
  EXPECT_GT(right, 340);
  EXPECT_EQ(result.json.at("by"), "held-out");
  EXPECT_EQ(result.json.at("folds"), 5);

  options.algorithm.solve.iterations = 3;
  EXPECT_THROW(run_interact(options, sets, again), OptionError);  // by an algorithm, and nothing validates
  options.table.by = "held-out";
  EXPECT_THROW(run_interact(options, sets, again), OptionError);  // it reads no iterations
}

TEST(InteractJob, AnInterruptedTableIsRepeated) {
  const TemporaryFolder folder;
  const TaskSets sets = shops(10, 2);
  const InteractJobResult stopped = until_interrupted(
      folder / "run", 3, [&](RunContext& context) { return run_interact({}, sets, context); });
  EXPECT_EQ(stopped.end.status, RunStatus::interrupted);
  EXPECT_FALSE(stopped.table);
  RunContext second({.keep = true, .resume = folder / "run"}, {}), alone;
  const InteractJobResult resumed = run_interact({}, sets, second);
  EXPECT_TRUE(resumed.interact.learned.w.equal(run_interact({}, sets, alone).interact.learned.w));
  EXPECT_TRUE(read_npy(folder / "run/model.npy").equal(resumed.interact.returned().w));
}

}  // namespace
}  // namespace bilevel::test
