// A run that was stopped, stored and read again goes on to the same bits as one that was not.
#include "bilevel/run/state_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/algorithms/known_optima.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;

struct Resumed {
  std::string algorithm;
  std::string inner_optimizer = "gd";
  std::string outer_optimizer = "sgd";
};
class EveryResumed : public ::testing::TestWithParam<Resumed> {};

void expect_same(const Tensor& a, const Tensor& b, const std::string& name) {
  ASSERT_EQ(a.defined(), b.defined()) << name;
  if (a.defined()) {
    EXPECT_TRUE(a.scalar_type() == b.scalar_type() && at::equal(a, b)) << name;
  }
}
void expect_same(const AlgorithmState& a, const AlgorithmState& b) {
  EXPECT_EQ(a.iteration, b.iteration);
  EXPECT_EQ(a.inner.step, b.inner.step);
  EXPECT_EQ(a.outer.step, b.outer.step);
  EXPECT_EQ(a.numbers, b.numbers);
  expect_same(a.x, b.x, "x");
  expect_same(a.v, b.v, "v");
  expect_same(a.inner.w, b.inner.w, "w");
  ASSERT_EQ(a.inner.buffers.size(), b.inner.buffers.size());
  for (size_t i = 0; i < a.inner.buffers.size(); ++i)
    expect_same(a.inner.buffers[i], b.inner.buffers[i], "buffer");
  ASSERT_EQ(a.outer.transforms.size(), b.outer.transforms.size());
  for (size_t i = 0; i < a.outer.transforms.size(); ++i) {
    ASSERT_EQ(a.outer.transforms[i].size(), b.outer.transforms[i].size());
    for (size_t k = 0; k < a.outer.transforms[i].size(); ++k) {
      expect_same(a.outer.transforms[i][k], b.outer.transforms[i][k], "outer");
    }
  }
  ASSERT_EQ(a.memory.size(), b.memory.size());
  for (const auto& [name, tensor] : a.memory) expect_same(tensor, b.memory.at(name), name);
}

TEST_P(EveryResumed, goes_on_to_the_same_bits) {
  const TemporaryFolder folder;
  const Known known = known_ridge();
  AlgorithmSettings settings = settings_for(known);
  settings.inner.optimizer = GetParam().inner_optimizer;
  settings.inner.rate *= 0.2;
  settings.inner.steps = 3;
  settings.inner.schedule = {ScheduleKind::cosine, 60, 0.1};
  settings.outer.optimizer = GetParam().outer_optimizer;
  settings.outer.momentum = 0.5;
  settings.outer.rate *= 0.05;
  const auto algorithm = make_algorithm(GetParam().algorithm, settings);
  const StreamOptions batches{.inner_batch = 4, .outer_batch = 4};
  const uint64_t seed = 0xfedcba9876543210U;  // all 64 bits
  Oracle oracle(*known.problem);
  Streams streams(seed, 12, 12, batches);
  AlgorithmState state = algorithm->init(oracle, known.x, known.w);
  for (int k = 0; k < 4; ++k) algorithm->step(oracle, state, streams);
  {
    Checkpoint checkpoint;
    put_state(checkpoint, state);
    put_streams(checkpoint, streams);
    put_counts(checkpoint, oracle.counts());
    save_checkpoint(folder.at("run"), checkpoint);
  }
  const OracleCounts at_save = oracle.counts();
  const AlgorithmState stored = state;
  for (int k = 0; k < 5; ++k) algorithm->step(oracle, state, streams);

  const Checkpoint checkpoint = load_checkpoint(folder.at("run"));
  AlgorithmState resumed = take_state(checkpoint);
  expect_same(resumed, stored);
  Streams other(seed, 12, 12, batches);
  take_streams(checkpoint, other);
  Oracle fresh(*known.problem);
  OracleCounts counts = take_counts(checkpoint);
  EXPECT_EQ(counts.seconds, at_save.seconds);
  for (int k = 0; k < 5; ++k) algorithm->step(fresh, resumed, other);
  expect_same(resumed, state);
  EXPECT_EQ(other.positions(), streams.positions());
  counts += fresh.counts();
  EXPECT_EQ(oracle_calls(counts), oracle_calls(oracle.counts()));
  EXPECT_EQ(counts.samples, oracle.counts().samples);
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryResumed,
                         ::testing::Values(Resumed{"double-loop", "heavy-ball", "adam"},
                                           Resumed{"darts", "adam", "adam"}, Resumed{"reverse", "nesterov"},
                                           Resumed{"idarts", "nesterov", "adam"}, Resumed{"stocbio"},
                                           Resumed{"fsla"}, Resumed{"saba"}, Resumed{"hoag"}, Resumed{"vrbo"},
                                           Resumed{"mrbo"}, Resumed{"bsa"}),
                         [](const auto& row) { return test_name(row.param.algorithm); });

TEST(StateCheckpoint, numbers_that_json_has_not_come_back) {
  AlgorithmState state;
  state.x = state.inner.w = vec({1});
  state.numbers = {{"nan", std::nan("")},
                   {"infinite", std::numeric_limits<double>::infinity()},
                   {"tiny", 5e-324},
                   {"third", 1.0 / 3}};
  state.memory["undefined"] = Tensor();
  Checkpoint checkpoint;
  put_state(checkpoint, state);
  const TemporaryFolder folder;
  save_checkpoint(folder.at("a"), checkpoint);
  const AlgorithmState found = take_state(load_checkpoint(folder.at("a")));
  EXPECT_TRUE(std::isnan(found.numbers.at("nan")));
  EXPECT_EQ(found.numbers.at("infinite"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(found.numbers.at("tiny"), 5e-324);
  EXPECT_EQ(found.numbers.at("third"), 1.0 / 3);
  EXPECT_FALSE(found.memory.at("undefined").defined());
  EXPECT_FALSE(found.v.defined());
}

TEST(StateCheckpoint, another_runs_checkpoint_is_refused_with_the_difference) {
  Checkpoint checkpoint;
  EXPECT_THAT(message_of([&] { take_state(checkpoint); }), HasSubstr("the part 'state' is missing"));
  EXPECT_THAT(message_of([&] { take_counts(checkpoint); }), HasSubstr("the part 'counts' is missing"));
  AlgorithmState state;
  state.x = state.inner.w = vec({1});
  put_state(checkpoint, state);
  Streams streams(3, 12, 20, {.inner_batch = 4, .outer_batch = 5});
  streams.inner("steps");
  put_streams(checkpoint, streams);
  put_counts(checkpoint, {});
  const auto into = [&](Streams other) { return message_of([&] { take_streams(checkpoint, other); }); };
  EXPECT_EQ(into({3, 12, 20, {.inner_batch = 4, .outer_batch = 5}}), "nothing was thrown");
  EXPECT_THAT(into({4, 12, 20, {.inner_batch = 4, .outer_batch = 5}}),
              HasSubstr("seed = 3, but this run has 4"));
  EXPECT_THAT(into({3, 13, 20, {.inner_batch = 4, .outer_batch = 5}}), HasSubstr("inner_samples = 12"));
  EXPECT_THAT(into({3, 12, 21, {.inner_batch = 4, .outer_batch = 5}}), HasSubstr("outer_samples = 20"));
  EXPECT_THAT(into({3, 12, 20, {.inner_batch = 3, .outer_batch = 5}}), HasSubstr("inner_batch = 4"));
  EXPECT_THAT(into({3, 12, 20, {.inner_batch = 4, .outer_batch = 6}}), HasSubstr("outer_batch = 5"));

  const auto spoilt = [&](auto change) {
    Checkpoint bad = checkpoint;
    change(bad);
    return message_of([&] {
      take_state(bad);
      take_counts(bad);
      Streams other(3, 12, 20, {.inner_batch = 4, .outer_batch = 5});
      take_streams(bad, other);
    });
  };
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.tensors.erase("state/w"); }), HasSubstr("'state/w' is missing"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["state"]["inner_buffers"] = uint64_t{1} << 60; }),
              HasSubstr("'state/inner/0' is missing"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["state"]["iteration"] = "3"; }),
              HasSubstr("'iteration'"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["state"]["iteration"] = 1e300; }),
              HasSubstr("expected whole numbers that fit, found 1e+300"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["state"]["inner_buffers"] = -1; }),
              HasSubstr("expected whole numbers that fit, found -1"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["state"]["outer_transforms"] = {0.5}; }),
              HasSubstr("'outer_transforms'"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["state"]["numbers"] = {"a"}; }), HasSubstr("1 doubles"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["counts"].erase("cross"); }), HasSubstr("'cross'"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["streams"]["positions"]["inner/steps"] = -1; }),
              HasSubstr("below 0"));
  EXPECT_THAT(spoilt([](Checkpoint& c) { c.metadata["streams"]["positions"]["inner/steps"] = INT64_MAX; }),
              HasSubstr("which no run can reach"));
}

// A device without values stands for a GPU here: it shows what goes where.
TEST(StateCheckpoint, tensors_go_to_the_device_that_is_asked_for) {
  AlgorithmState state;
  state.x = state.inner.w = state.v = vec({1, 2});
  state.memory["table"] = vec({3});
  Checkpoint checkpoint;
  put_state(checkpoint, state);
  checkpoint.metadata["state"]["elsewhere"] = {"memory/table"};  // as where x was on a GPU and this was not
  const AlgorithmState found = take_state(checkpoint, c10::Device(c10::kMeta));
  EXPECT_EQ(found.x.device().type(), c10::kMeta);
  EXPECT_EQ(found.inner.w.device().type(), c10::kMeta);
  EXPECT_EQ(found.v.device().type(), c10::kMeta);
  EXPECT_TRUE(found.memory.at("table").is_cpu());
}

}  // namespace
}  // namespace bilevel::test
