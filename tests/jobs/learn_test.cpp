// Learning across tasks as a C++ program calls it: without a folder, and interrupted and resumed in one.

#include "bilevel/jobs/learn.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/data/png.h"
#include "bilevel/data/write_file.h"
#include "bilevel/fields/option_text.h"
#include "tests/temporary_folder.h"

namespace bilevel {
namespace {

using test::TemporaryFolder;

LearnJobOptions small_learning() {
  LearnJobOptions o;
  o.learner.name = "itd";
  o.network.filters = 4;
  o.learner.inner_steps = 3;
  o.learn.meta_batch = 2;
  o.learn.iterations = 6;
  o.learn.records = 2;
  o.learn.valid_tasks = 3;
  o.learn.test_tasks = 5;
  o.data.seed = 2;
  o.compute.dtype = "double";
  o.compute.threads = 1;
  return o;
}

TEST(LearnJob, InterruptedAndResumedItEndsInTheSameBitsAsInMemory) {
  RunContext in_memory;
  const LearnJobResult expected = run_learn(small_learning(), in_memory);
  EXPECT_EQ(expected.end.status, RunStatus::finished);
  EXPECT_EQ(expected.folder, "");
  EXPECT_EQ(expected.options.learn.outer.rate, 0.001) << "itd's on points, which was not given";
  EXPECT_EQ(expected.options.learn.seed, 2U);

  const TemporaryFolder folder;
  int asked = 0;
  {
    RunContext stopped({.keep = true, .out = folder / "run"}, {.interrupted = [&] { return ++asked == 2; }});
    EXPECT_EQ(run_learn(small_learning(), stopped).end.status, RunStatus::interrupted);
  }
  {
    LearnJobOptions other = small_learning();
    other.data.seed = 3;
    RunContext context({.keep = true, .resume = folder / "run"}, {});
    EXPECT_THROW(run_learn(other, context), RunError);
  }
  RunContext resumed({.keep = true, .resume = folder / "run"}, {});
  const LearnJobResult result = run_learn(small_learning(), resumed);
  EXPECT_EQ(result.summary.state.algorithm.iteration, 6);
  EXPECT_TRUE(result.summary.state.algorithm.x.equal(expected.summary.state.algorithm.x));
  EXPECT_EQ(result.json.at("test_accuracy"), expected.json.at("test_accuracy"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/model"));
}

// Classes that lie in corners of their own, or all in one place.
class Corners : public meta::TaskSource {
 public:
  explicit Corners(double distance) : distance_(distance) {}
  int64_t outputs() const override { return 4; }
  std::vector<int64_t> input_shape() const override { return {6}; }
  int64_t classes(meta::Part /*part*/) const override { return 4; }
  meta::TaskBatch tasks(meta::Part /*part*/, int64_t first, int64_t count) const override {
    Random random(static_cast<uint64_t>(first));
    const auto inputs = [&](int64_t each) {
      const Tensor corner = distance_ * at::eye(4, 6, at::kDouble).repeat_interleave(each, 0);
      return (corner + distance_ * 0.05 * random.normal({count, 4 * each, 6}, at::kDouble));
    };
    return {inputs(1), meta::class_targets(count, 4, 1, at::kCPU), inputs(3),
            meta::class_targets(count, 4, 3, at::kCPU)};
  }

 private:
  double distance_;
};

TEST(LearnJob, TheBaselineIsLogisticRegressionOnEachTasksOwnInputs) {
  EXPECT_EQ(raw_input_baseline(Corners(3), 5, 20).test.accuracy, 100);
  // Nothing tells the classes apart: one of four is right.
  EXPECT_EQ(raw_input_baseline(Corners(0), 5, 20).test.accuracy, 25);
}

TEST(LearnJob, SaysWhatTheBaselineReachesBesideIt) {
  std::vector<std::string> warnings;
  RunContext context({}, {.warning = [&](const std::string& text) { warnings.push_back(text); }});
  LearnJobOptions o = small_learning();
  o.learn.iterations = 0;
  const LearnJobResult result = run_learn(o, context);
  EXPECT_EQ(result.baseline.test.tasks, 5);
  EXPECT_EQ(result.json.at("baseline_test_accuracy"), result.baseline.test.accuracy);
  EXPECT_EQ(result.json.at("best_iteration"), 0);
  // A random embedding of four numbers against all numbers of a point.
  ASSERT_FALSE(result.beats_baseline()) << result.summary.test.accuracy;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find(
                "logistic regression on the raw inputs of each task does better on the validation tasks"),
            0U)
      << warnings[0];
  // What does better on the validation tasks is what is returned.
  EXPECT_GT(result.baseline.valid.accuracy, result.summary.state.best_valid.accuracy);
  EXPECT_EQ(result.json.at("returned"), "raw_inputs");
  EXPECT_EQ(result.json.at("test_accuracy"), result.baseline.test.accuracy);
  EXPECT_EQ(result.json.at("learned_test_accuracy"), result.summary.test.accuracy);
}

// The classes are parted in memory as those of a folder are.
TEST(LearnJob, OnImagesInMemoryItIsThatOnTheSameImagesInAFolder) {
  if (!has_png()) GTEST_SKIP() << "SKIPPED: a build without libpng";
  constexpr int64_t classes = 12, each = 4;
  const at::Tensor pixels = at::arange(classes * each * 64, at::kLong).mul(37).remainder(200).to(at::kByte);
  const at::Tensor images = pixels.reshape({classes * each, 1, 8, 8});
  const TemporaryFolder folder;
  std::vector<std::string> names;
  for (int64_t k = 0; k < classes; ++k) {
    names.push_back("class" + std::to_string(10 + k));
    std::filesystem::create_directories(folder / ("images/" + names.back()));
    for (int64_t i = 0; i < each; ++i) {
      write_file(folder / ("images/" + names.back() + "/" + std::to_string(i) + ".png"),
                 write_png(images[k * each + i]));
    }
  }
  LearnJobOptions o = small_learning();
  o.data.data = folder / "images";
  o.data.shape.ways = 2;
  o.data.shape.queries = 2;
  // The values they begin with, in place of those for images.
  o.given.set(o.data.shape.shots, 1);
  o.given.set(o.network.name, "mlp");
  RunContext first, second;
  const LearnJobResult from_folder = run_learn(o, first);
  o.data.data = small_learning().data.data;
  const meta::ImageTaskSet set =
      meta::task_set_of({images, at::arange(classes).repeat_interleave(each)}, names);
  LearnJobResult in_memory = run_learn_on(set, o, second);
  EXPECT_TRUE(in_memory.summary.state.algorithm.x.equal(from_folder.summary.state.algorithm.x));
  EXPECT_EQ(in_memory.json.at("data"), "");
  EXPECT_EQ(in_memory.json.at("test_accuracy"), from_folder.json.at("test_accuracy"));
  EXPECT_EQ(in_memory.json.at("baseline_test_accuracy"), from_folder.json.at("baseline_test_accuracy"));
  const at::Tensor one_class = at::zeros({4}, at::kLong);
  EXPECT_THROW(meta::task_set_of({images, one_class}, {"one"}), std::invalid_argument);
  const meta::ImageTaskSet small = meta::task_set_of({images.narrow(0, 0, 4), one_class}, {"one"});
  EXPECT_THROW(run_learn_on(small, o, second), std::invalid_argument);
}

TEST(LearnJob, ACheckpointIsWrittenBetweenTwoRecordsOnceItsSecondsHavePassed) {
  const TemporaryFolder folder;
  LearnJobOptions o = small_learning();
  o.learn.records = 0;  // the start and the end alone
  int64_t saved = -1;
  RunContext context({.keep = true, .out = folder / "run", .save_seconds = 0},
                     {.step = [&](const StepProgress& at) {
                       if (at.step != 3) return;
                       const Checkpoint last = load_checkpoint(folder / "run/checkpoint");
                       saved = last.metadata.at("state").at("iteration").get<int64_t>();
                     }});
  (void)run_learn(o, context);
  EXPECT_EQ(saved, 2);
}

TEST(LearnJob, WhatALearnerDoesNotReadIsRefusedByName) {
  LearnJobOptions o;
  o.learner.name = "maml";
  o.given.set(o.learner.ridge, 0.5);
  RunContext context;
  try {
    (void)run_learn(o, context);
    FAIL() << "ridge was taken";
  } catch (const OptionError& error) {
    EXPECT_EQ(flag_text(error.marked()),
              "--ridge 0.5 has no effect with --learner maml; only aid and itd use it. Leave it out");
  }
  std::set<std::string> names;
  for (const Field& field : LearnJobOptions::fields().rows()) names.insert(field.name);
  for (const std::string& learner : meta::learner_names()) {
    for (const std::string& read : meta::options_read_by(learner)) EXPECT_TRUE(names.count(read)) << read;
  }
}

}  // namespace
}  // namespace bilevel
