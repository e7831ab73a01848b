// The job `interact` as a C++ program calls it: on made-up tasks and on tasks in memory, with a folder and
// without.
#include "bilevel/jobs/interact.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <string>

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
  EXPECT_EQ(
      interact_refusal(options),
      "tasks, clusters, features, test_examples: of made-up tasks; the files of train are taken as they "
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

}  // namespace
}  // namespace bilevel::test
