#include "bilevel/core/batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/messages.h"

namespace bilevel {
namespace {

using test::message;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int64_t> values(const Tensor& index) {
  return {index.data_ptr<int64_t>(), index.data_ptr<int64_t>() + index.numel()};
}

bool same(const Batch& a, const Batch& b) {
  if (a.seed != b.seed || a.is_full() != b.is_full()) return false;
  return a.is_full() || a.index.equal(b.index);
}

BatchOptions options(int64_t size, bool with_replacement = false, bool drop_last = false) {
  return {size, with_replacement, drop_last};
}

// From a Python transcription of the definition: a change of any of them would change every run on record.
TEST(BatchStream, batches_are_stable) {
  const BatchStream stream(7, "inner", 10, options(4));
  EXPECT_EQ(values(stream.at(0).index), (std::vector<int64_t>{6, 5, 0, 9}));
  EXPECT_EQ(values(stream.at(2).index), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(values(stream.at(3).index), (std::vector<int64_t>{2, 8, 3, 5}));
  EXPECT_EQ(stream.at(0).seed, 0x2f328f3f04b69274U);
  EXPECT_EQ(values(BatchStream(7, "inner", 10, options(5, true)).at(3).index),
            (std::vector<int64_t>{5, 7, 6, 3, 5}));
}

TEST(BatchStream, every_epoch_is_a_fresh_permutation) {
  BatchStream stream(1, "inner", 23, options(5));
  EXPECT_EQ(stream.batches_per_epoch(), 5);
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 20; ++epoch) {
    std::vector<int64_t> order;
    for (int i = 0; i < 5; ++i) {
      const Batch batch = stream.next();
      EXPECT_EQ(batch.size(23), i < 4 ? 5 : 3);
      for (const int64_t index : values(batch.index)) order.push_back(index);
    }
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, values(at::arange(23, at::kLong)));
  }
  EXPECT_EQ(orders.size(), 20U);
}

TEST(BatchStream, drop_last_leaves_out_the_short_batch_only) {
  BatchStream dropped(1, "inner", 23, options(5, false, true));
  const BatchStream whole(1, "inner", 23, options(5));
  EXPECT_EQ(dropped.batches_per_epoch(), 4);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(values(dropped.next().index), values(whole.at(epoch * 5 + i).index));
    }
  }
  EXPECT_EQ(BatchStream(1, "inner", 20, options(5, false, true)).batches_per_epoch(), 4);
}

TEST(BatchStream, a_batch_is_a_function_of_seed_name_and_position) {
  for (const BatchOptions& choice : {options(4), options(4, true), options(0), options(4, false, true)}) {
    BatchStream stream(3, "inner", 11, choice);
    std::vector<Batch> drawn;
    for (int i = 0; i < 12; ++i) drawn.push_back(stream.next());
    EXPECT_EQ(stream.position(), 12);
    const BatchStream other(3, "inner", 11, choice);
    for (int64_t i = 11; i >= 0; --i) {  // backwards, so that no cache helps
      EXPECT_TRUE(same(other.at(i), drawn[static_cast<size_t>(i)])) << i;
      EXPECT_TRUE(same(stream.at(i), drawn[static_cast<size_t>(i)])) << i;
    }
    stream.seek(5);
    EXPECT_TRUE(same(stream.next(), drawn[5]));
    EXPECT_TRUE(same(stream.next(), drawn[6]));
    EXPECT_FALSE(same(BatchStream(4, "inner", 11, choice).at(5), drawn[5]));
    EXPECT_FALSE(same(BatchStream(3, "outer", 11, choice).at(5), drawn[5]));
  }
}

TEST(BatchStream, writing_to_a_batch_does_not_change_the_stream) {
  BatchStream stream(3, "inner", 11, options(4));
  const Batch first = stream.at(0);
  const std::vector<int64_t> before = values(first.index);
  first.index.fill_(-1);
  EXPECT_EQ(values(stream.at(0).index), before);
}

TEST(BatchStream, with_replacement_every_draw_is_uniform_and_independent) {
  BatchStream stream(5, "inner", 4, options(6, true));  // larger than the population is allowed here
  EXPECT_EQ(stream.batches_per_epoch(), 1);
  EXPECT_EQ(BatchStream(5, "inner", 10, options(4, true, true)).batches_per_epoch(), 3);
  Tensor counts = at::zeros({4}, at::kDouble);
  Tensor pairs = at::zeros({16}, at::kDouble);
  for (int i = 0; i < 4000; ++i) {
    const Tensor index = stream.next().index;
    ASSERT_EQ(index.numel(), 6);
    counts += at::bincount(index, {}, 4);
    pairs[index[0].item<int64_t>() * 4 + index[1].item<int64_t>()] += 1;
  }
  EXPECT_LT(((counts - 6000).square() / 6000).sum().item<double>(), 16.27);  // 3 degrees, probability 0.001
  EXPECT_LT(((pairs - 250).square() / 250).sum().item<double>(), 37.70);     // 15 degrees
}

TEST(BatchStream, size_zero_is_the_full_set_with_a_seed_of_its_own_each_time) {
  BatchStream stream(5, "inner", 100);
  std::set<uint64_t> seeds;
  for (int i = 0; i < 50; ++i) {
    const Batch batch = stream.next();
    EXPECT_TRUE(batch.is_full());
    EXPECT_FALSE(batch.index.defined());
    EXPECT_EQ(batch.size(100), 100);
    seeds.insert(batch.seed);
  }
  EXPECT_EQ(seeds.size(), 50U);
  EXPECT_EQ(stream.batches_per_epoch(), 1);
}

TEST(BatchStream, the_whole_population_as_one_batch_is_still_shuffled) {
  const BatchStream stream(5, "inner", 50, options(50));
  EXPECT_EQ(stream.batches_per_epoch(), 1);
  EXPECT_NE(values(stream.at(0).index), values(stream.at(1).index));
}

TEST(BatchStream, misuse_names_the_option_its_value_the_bound_and_a_way_out) {
  EXPECT_THAT(message([] { BatchStream(1, "a", 0, options(1)); }),
              AllOf(HasSubstr("population = 0"), HasSubstr("at least 1"), HasSubstr("empty")));
  EXPECT_THAT(message([] { BatchStream(1, "a", 5, options(-2)); }),
              AllOf(HasSubstr("size = -2"), HasSubstr("at least 0"), HasSubstr("full set")));
  EXPECT_THAT(
      message([] { BatchStream(1, "a", 5, options(6)); }),
      AllOf(HasSubstr("size = 6"), HasSubstr("at most the population 5"), HasSubstr("with_replacement")));
  BatchStream stream(1, "a", 5, options(2));
  EXPECT_THAT(message([&] { stream.seek(-1); }), AllOf(HasSubstr("position = -1"), HasSubstr("begins at 0")));
  EXPECT_THAT(message([&] { stream.at(-7); }), HasSubstr("position = -7"));
  EXPECT_THAT(message([&] { stream.seek(std::numeric_limits<int64_t>::max()); }), HasSubstr("position"));
  EXPECT_EQ(stream.position(), 0);
}

TEST(BatchStream, far_positions_are_reached_at_once) {
  BatchStream stream(1, "a", 5, options(2));
  stream.seek(std::numeric_limits<int64_t>::max() - 1);
  const Batch batch = stream.next();
  EXPECT_GE(batch.index.min().item<int64_t>(), 0);
  EXPECT_LT(batch.index.max().item<int64_t>(), 5);
}

}  // namespace
}  // namespace bilevel
