// The job `tune` as a C++ program calls it: on files and on tensors, with a folder and without.
#include "bilevel/jobs/tune.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <string>

#include "bilevel/data/npy.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/run/run_folder.h"
#include "tests/jobs/example_files.h"

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;

TuneJobOptions tune_options() {
  TuneJobOptions options;
  options.compute.threads = 1;
  options.compute.dtype = "double";
  return options;
}

TuneJobOptions tune_by_algorithm_options() {
  TuneJobOptions options = tune_options();
  options.algorithm.solve.iterations = 6;
  return options;
}

std::string tune_refusal(const TuneJobOptions& options, const ExampleSets& data) {
  RunContext context;
  try {
    run_tune(options, data, context);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(TuneJob, OnTensorsItIsTuneTable) {
  ExampleSets sets = example_sets();
  sets.feature_names = {"a", "b", "c", "d", "e"};
  RunContext context;
  const TuneJobResult result = run_tune(tune_options(), sets, context);
  const TuneTableResult direct = tune_table({.train = sets.train, .valid = sets.valid, .classes = 3}, {});
  EXPECT_EQ(result.by, "held-out");
  EXPECT_TRUE(result.x.equal(direct.returned().logarithms));
  EXPECT_TRUE(result.model.equal(direct.returned().weights));
  EXPECT_EQ(result.scores.at("valid_loss"), direct.returned().held_out_loss);
  EXPECT_EQ(result.json.at("baseline_valid_loss"), direct.single.held_out_loss);
  EXPECT_EQ(result.json.at("test_examples"), 45);
  EXPECT_EQ(result.feature_names.front(), "a");
  EXPECT_FALSE(context.has_folder());
  EXPECT_FALSE(result.json.contains("folder"));
}

TEST(TuneJob, FilesAndTensorsGiveTheSameBitsByEitherWay) {
  const TemporaryFolder folder;
  ExampleSets sets = example_sets();
  sets.valid = {};  // a part of the training examples
  write_examples(folder, "train", sets.train);
  write_examples(folder, "test", sets.test);
  for (const TuneJobOptions& options : {tune_options(), tune_by_algorithm_options()}) {
    TuneJobOptions of_files = options;
    of_files.files.train = {folder / "train-x.npy", folder / "train-y.npy"};
    of_files.files.test = {folder / "test-x.npy", folder / "test-y.npy"};
    RunContext first, second;
    const TuneJobResult read = run_tune(of_files, first), given = run_tune(options, sets, second);
    EXPECT_EQ(read.by, given.by);
    EXPECT_TRUE(read.x.equal(given.x)) << read.by;
    EXPECT_TRUE(read.model.equal(given.model)) << read.by;
    EXPECT_EQ(read.scores, given.scores) << read.by;
    EXPECT_EQ(read.order, given.order) << read.by;
  }
}

TEST(TuneJob, WhatIsSetCountsAsGiven) {
  const ExampleSets sets = example_sets();
  RunContext context;
  const TuneJobResult result = run_tune(tune_by_algorithm_options(), sets, context);
  EXPECT_EQ(result.by, "algorithm");
  ASSERT_TRUE(result.search);
  EXPECT_EQ(result.search->summary.state.iteration, 6);
  TuneJobOptions both = tune_by_algorithm_options();
  both.table.by = "held-out";
  EXPECT_EQ(tune_refusal(both, sets),
            "by = held-out does not use iterations: leave it out, or use by = algorithm");
  TuneJobOptions folds = tune_options();
  folds.table.folds = 3;
  EXPECT_EQ(
      tune_refusal(folds, sets),
      "folds = 3 with valid: rows are held out in folds only if there is no validation file; leave one of "
      "them out");
  TuneJobOptions with_file = tune_options();
  with_file.data = "newsgroups";
  EXPECT_EQ(tune_refusal(with_file, sets),
            "data: this is for files and named sets, and the examples are in memory; leave it out");
}

TEST(TuneJob, AnInterruptedRunGoesOnToTheSameBits) {
  const TemporaryFolder folder;
  const ExampleSets sets = example_sets();
  RunContext alone;
  const TuneJobResult whole = run_tune(tune_by_algorithm_options(), sets, alone);
  // The training for the first rate asks a thousand times.
  const TuneJobResult stopped = until_interrupted(folder / "run", 1003, [&](RunContext& context) {
    return run_tune(tune_by_algorithm_options(), sets, context);
  });
  EXPECT_EQ(stopped.end.status, RunStatus::interrupted);
  EXPECT_EQ(read_run(folder / "run").status, RunStatus::interrupted);
  EXPECT_GT(stopped.search->summary.state.iteration, 0);
  EXPECT_LT(stopped.search->summary.state.iteration, 6);

  RunContext second({.keep = true, .resume = folder / "run"}, {});
  const TuneJobResult resumed = run_tune(tune_by_algorithm_options(), sets, second);
  EXPECT_EQ(resumed.end.status, RunStatus::finished);
  EXPECT_TRUE(resumed.x.equal(whole.x));
  EXPECT_TRUE(resumed.model.equal(whole.model));
  EXPECT_THAT(resumed.files, ElementsAre("regularisers.npy", "regularisers.csv", "model.npy", "model.json"));
  EXPECT_TRUE(read_npy(folder / "run/model.npy").equal(whole.model));
}

TEST(TuneJob, TheProblemOfAStoredRunIsMadeAgain) {
  const TemporaryFolder folder;
  write_examples(folder, "train", example_sets().train);
  TuneJobOptions options = tune_by_algorithm_options();
  options.files.train = {folder / "train-x.npy", folder / "train-y.npy"};
  RunContext context({.keep = true, .out = folder / "run"}, {});
  const TuneJobResult result = run_tune(options, context);
  const RunProblem problem = tune_problem(read_stored_run(folder / "run"));
  EXPECT_EQ(problem.facts.problem->initial_outer(0).numel(), 5);
  EXPECT_EQ(problem.facts.inner_rate, result.search->inner_rate);
  EXPECT_TRUE(problem.rate_is_given);
}

}  // namespace
}  // namespace bilevel::test
