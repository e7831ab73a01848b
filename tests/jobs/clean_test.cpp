// The job `clean` as a C++ program calls it: on files and on tensors, with a folder and without.
#include "bilevel/jobs/clean.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "bilevel/fields/option_text.h"
#include "bilevel/run/run_folder.h"
#include "tests/jobs/example_files.h"

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CleanJobOptions plain_options() {
  CleanJobOptions options;
  options.compute.threads = 1;
  options.compute.dtype = "double";
  return options;
}

// Short, and with a setting of its own.
CleanJobOptions by_weights() {
  CleanJobOptions options = plain_options();
  options.algorithm.solve.iterations = 6;
  options.algorithm.settings.inner.steps = 10;
  options.final_steps = 20;
  return options;
}

void set_files(CleanJobOptions& options, const TemporaryFolder& folder) {
  options.files.train = {folder / "train-x.npy", folder / "train-y.npy"};
  options.files.valid = {folder / "valid-x.npy", folder / "valid-y.npy"};
  options.files.test = {folder / "test-x.npy", folder / "test-y.npy"};
}

void write_sets(const TemporaryFolder& folder, const ExampleSets& sets) {
  write_examples(folder, "train", sets.train);
  write_examples(folder, "valid", sets.valid);
  write_examples(folder, "test", sets.test);
}

std::string refusal(const CleanJobOptions& options, const ExampleSets& data) {
  RunContext context;
  try {
    run_clean(options, data, context);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(CleanJob, OnTensorsItIsCleanTable) {
  const ExampleSets sets = example_sets(0.3);
  RunContext context;
  const CleanJobResult result = run_clean(plain_options(), sets, context);
  const CleanTableResult direct = clean_table({.train = sets.train, .trusted = sets.valid, .classes = 3}, {});
  EXPECT_EQ(result.by, "noise-model");
  ASSERT_TRUE(result.table);
  EXPECT_TRUE(result.table->posterior.equal(direct.posterior));
  EXPECT_EQ(result.clean.suspects, direct.suspects);
  EXPECT_GT(result.clean.suspects.size(), 15U);
  EXPECT_TRUE(result.clean.weights.equal(1 - direct.wrong));
  ASSERT_TRUE(result.test);
  EXPECT_EQ(result.json.at("test_accuracy"), result.test->accuracy);
  EXPECT_EQ(result.end.status, RunStatus::finished);
  EXPECT_FALSE(context.has_folder());
  EXPECT_FALSE(result.json.contains("folder"));
  EXPECT_TRUE(result.files.empty());
}

// With every label right, the noise models predict held-out labels no better, and nothing is suspect.
// weights.csv still ranks the rows by them.
TEST(CleanJob, ReturnsTheBaselineAndRanksRowsWhereNoLabelIsWrong) {
  const ExampleSets sets = example_sets();
  RunContext context;
  const CleanJobResult result = run_clean(plain_options(), sets, context);
  ASSERT_TRUE(result.table);
  EXPECT_TRUE(result.table->kept_baseline);
  EXPECT_EQ(result.json.at("returned"), "baseline");
  EXPECT_TRUE(result.clean.suspects.empty());
  EXPECT_TRUE(result.clean.suggested.equal(sets.train.labels));
  EXPECT_TRUE(result.clean.weights.equal(1 - result.table->wrong));
  EXPECT_GT(result.table->wrong.max().item<double>(), 0);
}

TEST(CleanJob, FilesAndTensorsGiveTheSameBitsByEitherWay) {
  const TemporaryFolder folder;
  const ExampleSets sets = example_sets(0.3);
  write_sets(folder, sets);
  for (const CleanJobOptions& options : {plain_options(), by_weights()}) {
    CleanJobOptions of_files = options;
    set_files(of_files, folder);
    RunContext first, second;
    const CleanJobResult read = run_clean(of_files, first), given = run_clean(options, sets, second);
    EXPECT_EQ(read.by, given.by);
    EXPECT_TRUE(read.clean.weights.equal(given.clean.weights)) << read.by;
    EXPECT_EQ(read.clean.suspects, given.clean.suspects) << read.by;
    EXPECT_EQ(read.json.at("test_accuracy"), given.json.at("test_accuracy")) << read.by;
    EXPECT_EQ(read.data, folder / "train-x.npy");
  }
}

// A field that was set is an option that was given: it decides the way, and what would be ignored is refused.
TEST(CleanJob, WhatIsSetCountsAsGiven) {
  const ExampleSets sets = example_sets(0.3);
  RunContext context;
  const CleanJobResult result = run_clean(by_weights(), sets, context);
  EXPECT_EQ(result.by, "weights");
  EXPECT_EQ(result.options.solve.iterations, 6);
  EXPECT_EQ(result.clean.solve.state.iteration, 6);

  CleanJobOptions both = by_weights();
  both.table.by = "noise-model";
  EXPECT_EQ(refusal(both, sets),
            "by = noise-model does not use inner_steps, iterations, final_steps: leave it out, or use by = "
            "weights");
  CleanJobOptions folds = by_weights();
  folds.table.folds = 3;
  EXPECT_EQ(refusal(folds, sets),
            "folds needs by = noise-model, but inner_steps, iterations, final_steps need by = weights: leave "
            "one of them out");
  CleanJobOptions with_file = plain_options();
  with_file.files.train.features = "train.csv";
  EXPECT_EQ(refusal(with_file, sets),
            "train: this is for files and named sets, and the examples are in memory; leave it out");
  EXPECT_EQ(refusal(by_weights(), {.train = sets.train}),
            "by = weights needs validation examples whose labels are right");
}

TEST(CleanJob, ExamplesThatDoNotFitAreNamed) {
  ExampleSets sets = example_sets();
  const auto refused = [](const ExampleSets& data) {
    RunContext context;
    try {
      run_clean(plain_options(), data, context);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  ExampleSets short_labels = sets;
  short_labels.train.labels = sets.train.labels.slice(0, 1);
  EXPECT_EQ(refused(short_labels), "train: 90 examples with 89 labels");
  ExampleSets other_columns = sets;
  other_columns.valid.features.dense = sets.valid.features.dense.slice(1, 1).contiguous();
  EXPECT_EQ(refused(other_columns), "valid: 4 features, and train has 5");
  ExampleSets not_finite = sets;
  not_finite.train.features.dense = sets.train.features.dense.clone();
  not_finite.train.features.dense[7][2] = NAN;
  EXPECT_EQ(refused(not_finite), "train: example 7 has a number that is not finite");
  ExampleSets halves = sets;
  halves.train.labels = sets.train.labels.to(at::kDouble);
  EXPECT_EQ(refused(halves), "train: the labels must be whole numbers, found Double");
  EXPECT_EQ(refused({}), "train: there are no examples");
}

TEST(CleanJob, AnInterruptedRunGoesOnToTheSameBits) {
  const TemporaryFolder folder;
  const ExampleSets sets = example_sets(0.3);
  RunContext alone;
  const CleanJobResult whole = run_clean(by_weights(), sets, alone);
  const CleanJobResult stopped = until_interrupted(
      folder / "run", 4, [&](RunContext& context) { return run_clean(by_weights(), sets, context); });
  EXPECT_EQ(stopped.end.status, RunStatus::interrupted);
  EXPECT_FALSE(stopped.clean.finished);
  EXPECT_EQ(stopped.json.at("stopped"), "interrupted");
  EXPECT_EQ(read_run(folder / "run").status, RunStatus::interrupted);
  EXPECT_LT(stopped.clean.solve.state.iteration, 6);

  RunContext second({.keep = true, .resume = folder / "run"}, {});
  const CleanJobResult resumed = run_clean(by_weights(), sets, second);
  EXPECT_EQ(resumed.end.status, RunStatus::finished);
  EXPECT_TRUE(resumed.clean.weights.equal(whole.clean.weights));
  EXPECT_EQ(resumed.clean.cleaned.valid_loss, whole.clean.cleaned.valid_loss);
  EXPECT_THAT(resumed.files, ElementsAre("weights.csv", "suspects.csv", "model.npy", "model.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/suspects.csv"));

  ExampleSets changed = sets;
  changed.train.features.dense = sets.train.features.dense * 2;
  until_interrupted(folder / "third", 4,
                    [&](RunContext& context) { return run_clean(by_weights(), sets, context); });
  RunContext on_other({.keep = true, .resume = folder / "third"}, {});
  EXPECT_THROW(run_clean(by_weights(), changed, on_other), RunError);
}

TEST(CleanJob, AnInterruptedTableIsRepeated) {
  const TemporaryFolder folder;
  const ExampleSets sets = example_sets(0.3);
  const CleanJobResult stopped = until_interrupted(
      folder / "run", 3, [&](RunContext& context) { return run_clean(plain_options(), sets, context); });
  EXPECT_EQ(stopped.end.status, RunStatus::interrupted);
  EXPECT_FALSE(stopped.table);
  RunContext second({.keep = true, .resume = folder / "run"}, {}), alone;
  const CleanJobResult resumed = run_clean(plain_options(), sets, second);
  const CleanJobResult whole = run_clean(plain_options(), sets, alone);
  EXPECT_TRUE(resumed.table->posterior.equal(whole.table->posterior));
  EXPECT_THAT(resumed.files,
              ElementsAre("weights.csv", "suspects.csv", "noise_matrix.csv", "model.npy", "model.json"));
}

// For who looks at the problem of a stored run, of this version or of an earlier one.
TEST(CleanJob, TheProblemOfAStoredRunIsMadeAgain) {
  const TemporaryFolder folder;
  write_sets(folder, example_sets(0.3));
  CleanJobOptions options = by_weights();
  set_files(options, folder);
  RunContext context({.keep = true, .out = folder / "run"}, {});
  const CleanJobResult result = run_clean(options, context);
  const RunProblem problem = clean_problem(read_stored_run(folder / "run"));
  EXPECT_EQ(problem.facts.problem->initial_outer(0).numel(), 90);
  EXPECT_EQ(problem.facts.inner_rate, result.options.settings.inner.rate);
  EXPECT_TRUE(problem.rate_is_given);

  StoredRun earlier = read_stored_run(folder / "run");
  earlier.given = words_of({{"--train", {folder / "train-x.npy"}},
                            {"--train-labels", {folder / "train-y.npy"}},
                            {"--valid", {folder / "valid-x.npy"}},
                            {"--valid-labels", {folder / "valid-y.npy"}},
                            {"--no-bias", {"true"}},
                            {"--dtype", {"double"}},
                            {"--seed", {"3"}}});
  const RunProblem without_bias = clean_problem(earlier);
  EXPECT_EQ(without_bias.facts.problem->initial_inner(0).numel(), 3 * 5);
  EXPECT_EQ(without_bias.seed, 3U);

  StoredRun table = earlier;
  table.folder = folder.path();  // without a checkpoint
  table.given = words_of({{"train", folder / "train-x.npy"}, {"train_labels", folder / "train-y.npy"}});
  try {
    clean_problem(table);
    ADD_FAILURE() << "a run by the noise model has no point to look at";
  } catch (const OptionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("solves its problems to the end and keeps no point to diagnose"));
  }
}

}  // namespace
}  // namespace bilevel::test
