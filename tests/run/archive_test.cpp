// One list of a state's parts puts them into a checkpoint and takes them out again.
#include "bilevel/run/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/algorithms/resumable.h"

namespace bilevel::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Record {
  int64_t step = 0;
  double loss = 0;
};
struct State {
  double rate = 0;
  double guard = 0;
  std::map<std::string, int64_t> streams;
  std::vector<Record> history;
};

const auto visit_record = [](auto& a, auto& r) {
  a.value("step", r.step);
  a.number("loss", r.loss);
};
const auto visit_state = [](auto& a, auto& s) {
  a.value("rate", s.rate);
  a.later_number("guard", s.guard);
  a.value("streams", s.streams);
  a.list("history", s.history, visit_record);
};

TEST(Archive, PutsAndTakesTheSameParts) {
  const State state{.rate = 0.1, .guard = 3, .streams = {{"inner", 7}}, .history = {{1, 0.5}, {2, NAN}}};
  Checkpoint checkpoint;
  CheckpointPut put(checkpoint);
  put.part("loop", state, visit_state);
  EXPECT_EQ(checkpoint.metadata["loop"].dump(),
            R"({"guard":3.0,"history":[{"loss":0.5,"step":1},{"loss":null,"step":2}],)"
            R"("rate":0.1,"streams":{"inner":7}})");
  State taken;
  CheckpointTake take(checkpoint, c10::kCPU);
  take.part("loop", taken, visit_state);
  EXPECT_EQ(taken.rate, 0.1);
  EXPECT_EQ(taken.guard, 3);
  EXPECT_EQ(taken.streams.at("inner"), 7);
  ASSERT_EQ(taken.history.size(), 2U);
  EXPECT_EQ(taken.history[0].loss, 0.5);
  EXPECT_TRUE(std::isnan(taken.history[1].loss));
  EXPECT_EQ(taken.history[1].step, 2);
}

TEST(Archive, TakesWhatEarlierVersionsStoredAndRefusesWhatIsMissing) {
  Checkpoint checkpoint;
  checkpoint.metadata["loop"] = {
      {"rate", 0.5}, {"streams", nlohmann::json::object()}, {"history", nlohmann::json::array()}};
  State taken;
  CheckpointTake take(checkpoint, c10::kCPU);
  take.part("loop", taken, visit_state);
  EXPECT_EQ(taken.rate, 0.5);
  EXPECT_TRUE(std::isnan(taken.guard));
  checkpoint.metadata["loop"]["streams"]["inner"] = 1.5;
  EXPECT_THAT([&] { take.part("loop", taken, visit_state); },
              ThrowsMessage<std::runtime_error>(HasSubstr("expected whole numbers")));
  checkpoint.metadata["loop"].erase("rate");
  EXPECT_THROW(take.part("loop", taken, visit_state), std::exception);
  Tensor missing;
  EXPECT_THAT([&] { take.tensor("loop/w", missing); },
              ThrowsMessage<std::runtime_error>("the tensor 'loop/w' is missing"));
}

struct Hooks {
  std::function<void(const int&)> save = {};
  double save_seconds = 10;
  std::function<bool()> interrupted = {};
};

TEST(Resumable, SavesWhenItIsDueAndAsksForInterruption) {
  std::vector<int> saved;
  bool stop = false;
  Hooks hooks{.save = [&](const int& state) { saved.push_back(state); },
              .save_seconds = 1000,
              .interrupted = [&] { return stop; }};
  Resumable<Hooks> loop(hooks);
  EXPECT_FALSE(loop.save_due());
  EXPECT_FALSE(loop.interrupted());
  hooks.save_seconds = 0;
  EXPECT_TRUE(loop.save_due());
  loop.save(3);
  stop = true;
  EXPECT_TRUE(loop.interrupted());
  loop.save(4);
  EXPECT_THAT(saved, ElementsAre(3, 4));
  const Hooks nobody{.save_seconds = 0};
  Resumable<Hooks> alone(nobody);
  EXPECT_FALSE(alone.save_due());
  EXPECT_FALSE(alone.interrupted());
  alone.save(5);
}

}  // namespace
}  // namespace bilevel::test
