#include "bilevel/data/splits.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <set>

#include "tests/data/class_counts.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 100 of class 0, 200 of class 1, ... interleaved.
Tensor labels_of(int64_t classes) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 100 * classes; ++i) {
    for (int64_t k = 0; k < classes; ++k) {
      if (i < 100 * (k + 1)) labels.push_back(k);
    }
  }
  return at::tensor(labels, at::TensorOptions().dtype(at::kLong));
}

void expect_disjoint(const Splits& splits, int64_t examples) {
  std::set<int64_t> seen;
  int64_t total = 0;
  for (const Tensor& part : {splits.train, splits.valid, splits.test}) {
    for (int64_t i = 0; i < part.numel(); ++i) seen.insert(part[i].item<int64_t>());
    total += part.numel();
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), total);
  if (!seen.empty()) {
    EXPECT_GE(*seen.begin(), 0);
    EXPECT_LT(*seen.rbegin(), examples);
  }
}

TEST(Splits, AreEqualByClass) {
  const Tensor labels = labels_of(4);
  const Splits splits = make_splits(labels, 4, {200, 102, 40}, Balance::equal, 7);
  expect_disjoint(splits, labels.numel());
  EXPECT_THAT(class_counts(labels, splits.train, 4), Each(50));
  EXPECT_THAT(class_counts(labels, splits.valid, 4), ElementsAre(26, 26, 25, 25));
  EXPECT_THAT(class_counts(labels, splits.test, 4), Each(10));
}

TEST(Splits, KeepTheSharesOfTheClasses) {
  const Tensor labels = labels_of(4);
  const Splits splits = make_splits(labels, 4, {500, 300, 200}, Balance::proportional, 7);
  expect_disjoint(splits, labels.numel());
  EXPECT_THAT(class_counts(labels, splits.train, 4), ElementsAre(50, 100, 150, 200));
  EXPECT_THAT(class_counts(labels, splits.valid, 4), ElementsAre(30, 60, 90, 120));
  EXPECT_THAT(class_counts(labels, splits.test, 4), ElementsAre(20, 40, 60, 80));
  const Splits odd = make_splits(labels, 4, {333, 333, 334}, Balance::proportional, 7);
  expect_disjoint(odd, labels.numel());
  EXPECT_EQ(odd.train.numel() + odd.valid.numel() + odd.test.numel(), 1000);
  EXPECT_THAT(class_counts(labels, odd.train, 4), ElementsAre(33, 67, 100, 133));
}

TEST(Splits, MayIgnoreTheClasses) {
  const Tensor labels = labels_of(3);
  const Splits splits = make_splits(labels, 3, {300, 300, 0}, Balance::none, 7);
  expect_disjoint(splits, labels.numel());
  EXPECT_EQ(splits.train.numel() + splits.valid.numel(), 600);
  EXPECT_EQ(splits.test.numel(), 0);
}

TEST(Splits, FollowTheirSeed) {
  const Tensor labels = labels_of(3);
  for (const Balance balance : {Balance::equal, Balance::proportional, Balance::none}) {
    const Splits one = make_splits(labels, 3, {60, 60, 60}, balance, 1);
    const Splits same = make_splits(labels, 3, {60, 60, 60}, balance, 1);
    const Splits other = make_splits(labels, 3, {60, 60, 60}, balance, 2);
    EXPECT_TRUE(one.train.equal(same.train) && one.valid.equal(same.valid) && one.test.equal(same.test));
    EXPECT_FALSE(one.train.equal(other.train));
    // In random order: the classes are not in blocks.
    const Tensor classes = labels.index_select(0, one.train);
    EXPECT_FALSE(classes.equal(std::get<0>(classes.sort())));
  }
}

TEST(Splits, NameTheClassThatHasTooFew) {
  const Tensor labels = labels_of(4);
  const auto message = [&](const SplitSizes& sizes, Balance balance = Balance::equal) {
    return message_of<std::invalid_argument>([&] { make_splits(labels, 4, sizes, balance, 7); });
  };
  EXPECT_THAT(message({300, 200, 0}), AllOf(HasSubstr("class 0 has 100 examples, 75 of them used"),
                                            HasSubstr("the valid set of 200 needs 50 more")));
  EXPECT_EQ(message({300, 200, 0}, Balance::proportional), "nothing was thrown");
  EXPECT_THAT(message({600, 600, 0}, Balance::none), HasSubstr("need 1200 examples, there are 1000"));
  EXPECT_THAT(message({-1, 0, 0}), HasSubstr("train size = -1"));
  EXPECT_THAT(message({0, int64_t{1} << 62, 0}), HasSubstr("valid size"));
  EXPECT_THAT(message_of([&] {
                make_splits(labels, 3, {9, 0, 0}, Balance::equal, 7);
              }),
              HasSubstr("a label from 0 to 2, found 3"));
}

}  // namespace
}  // namespace bilevel::test
