// Learning across tasks as a C++ program calls it: without a folder, and interrupted and resumed in one.

#include "bilevel/jobs/learn.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

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
              "--ridge 0.5 changes nothing for --learner maml: it is of aid, itd; leave it out");
  }
  std::set<std::string> names;
  for (const Field& field : LearnJobOptions::fields().rows()) names.insert(field.name);
  for (const std::string& learner : meta::learner_names()) {
    for (const std::string& read : meta::options_read_by(learner)) EXPECT_TRUE(names.count(read)) << read;
  }
}

}  // namespace
}  // namespace bilevel
