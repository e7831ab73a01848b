#include "bilevel/data/search_split.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <numeric>

#include "tests/data/class_counts.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// As many examples of each class as `counts` says, interleaved by a stride.
Tensor labels_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> labels;
  std::vector<int64_t> left = counts;
  while (std::accumulate(left.begin(), left.end(), int64_t{0}) > 0) {
    for (size_t k = 0; k < left.size(); ++k) {
      if (left[k]-- > 0) {
        labels.push_back(static_cast<int64_t>(k));
      } else {
        left[k] = 0;
      }
    }
  }
  return at::tensor(labels, at::TensorOptions().dtype(at::kLong));
}

int64_t distinct(const SearchSplit& split) {
  return std::get<0>(at::_unique(at::cat({split.train, split.valid}))).numel();
}

TEST(SearchSplit, HalvesEveryClass) {
  const Tensor labels = labels_of({100, 60, 41});
  const SearchSplit split = make_search_split(labels, 3, {.seed = 5});
  EXPECT_EQ(split.train.numel(), 100);
  EXPECT_EQ(split.valid.numel(), 101);
  EXPECT_EQ(distinct(split), 201);
  EXPECT_THAT(class_counts(labels, split.train, 3), ElementsAre(50, 30, 20));
  const SearchSplit other = make_search_split(labels, 3, {.seed = 6});
  EXPECT_TRUE(make_search_split(labels, 3, {.seed = 5}).train.equal(split.train));
  EXPECT_FALSE(other.train.equal(split.train));
}

TEST(SearchSplit, TakesAsManyOfEachClassAsItCan) {
  const Tensor labels = labels_of({100, 60, 8});
  const auto of_size = [&](int64_t size) { return make_search_split(labels, 3, {.train_size = size}); };
  EXPECT_THAT(class_counts(labels, of_size(12).train, 3), Each(4));
  const SearchSplit split = of_size(45);  // class 2 has 4 for each list, the others share the rest
  EXPECT_EQ(distinct(split), 90);
  EXPECT_THAT(class_counts(labels, split.train, 3), ElementsAre(21, 20, 4));
  EXPECT_THAT(class_counts(labels, split.valid, 3), ElementsAre(21, 20, 4));
  EXPECT_THAT(class_counts(labels, of_size(84).valid, 3), ElementsAre(50, 30, 4));
  EXPECT_THAT(class_counts(labels, of_size(1).train, 3), ElementsAre(1, 0, 0));
  const auto message = [&](int64_t size) {
    return message_of<std::invalid_argument>([&] { of_size(size); });
  };
  EXPECT_THAT(message(85), AllOf(HasSubstr("train_size = 85: must be at most 84"), HasSubstr("168 images")));
  EXPECT_THAT(message(INT64_MAX), HasSubstr("must be at most 84"));
  EXPECT_THAT(message(-1), HasSubstr("train_size = -1: must be at least 0"));
}

TEST(SearchSplit, ReadsBothForms) {
  const TemporaryFolder folder;
  for (const char* text : {R"({"train": ["int", ["0", "5", "7"]], "valid": ["int", ["1", "2"]]})",
                           R"({"train": [0, 5, 7], "valid": [1, 2]})"}) {
    const SearchSplit split = read_search_split(folder.put("split", text), 8);
    EXPECT_TRUE(split.train.equal(at::tensor({0, 5, 7}).to(at::kLong))) << text;
    EXPECT_TRUE(split.valid.equal(at::tensor({1, 2}).to(at::kLong))) << text;
  }
}

TEST(SearchSplit, NamesTheListAndTheEntryThatIsWrong) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text) {
    const std::string path = folder.put("split", text);
    const std::string found = message_of([&] { read_search_split(path, 8); });
    EXPECT_THAT(found, StartsWith(path + ": expected"));
    return found;
  };
  EXPECT_THAT(message(R"({"train": [0, 8], "valid": [1]})"),
              HasSubstr("in \"train\" positions from 0 to 7, found 8 as entry 1"));
  EXPECT_THAT(message(R"({"train": [0], "valid": ["int", ["1", "-2"]]})"),
              HasSubstr("in \"valid\" positions from 0 to 7, found \"-2\" as entry 1"));
  for (const char* entry : {"1.5", "-1", "null", "\"1x\"", "\"\"", "[1]", "18446744073709551615", "{}",
                            "\"99999999999999999999\""}) {
    EXPECT_THAT(message(fmt::format(R"({{"train": [0, {}, 2], "valid": [3]}})", entry)),
                HasSubstr("as entry 1"))
        << entry;
  }
  EXPECT_THAT(message(R"({"train": [0, 3, 0], "valid": [1]})"), HasSubstr("0 twice in \"train\""));
  EXPECT_THAT(message(R"({"train": [0], "valid": [2, 1, 1]})"), HasSubstr("1 twice in \"valid\""));
  EXPECT_THAT(message(R"({"train": [0, 4], "valid": [1, 4]})"), HasSubstr("4 in \"train\" and in \"valid\""));
  EXPECT_THAT(message(R"({"train": [0, 4]})"), HasSubstr("a list \"valid\" of positions, found none"));
  EXPECT_THAT(message(R"({"train": [], "valid": [1]})"), HasSubstr("a list \"train\""));
  EXPECT_THAT(message("[1, 2]"), HasSubstr("a list \"train\""));
  EXPECT_THAT(message("{"), HasSubstr("expected JSON"));
  EXPECT_THAT(message(""), HasSubstr("expected JSON"));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(message(fmt::format(R"({{"train": [0, {}], "valid": [1]}})", deep)),
              HasSubstr("expected lists at most 8 levels deep"));
  EXPECT_THAT(message(R"({"train": [0, [[1]]], "valid": [1]})"), HasSubstr("found array"));
  EXPECT_THAT(message_of([&] { read_search_split(folder.put("long", std::string(40'000'000, ' ')), 8); }),
              HasSubstr("at most 33554432 bytes"));
}

TEST(SearchSplit, ReadsThePublishedSplit) {
  const std::string path = shared_data("cifar-split.txt");
  if (path.empty()) GTEST_SKIP() << "SKIPPED: needs the published split of CIFAR-10, cifar-split.txt";
  const SearchSplit split = read_search_split(path, 50000);
  EXPECT_EQ(split.train.numel(), 25000);
  EXPECT_EQ(split.valid.numel(), 25000);
  EXPECT_EQ(distinct(split), 50000);
  EXPECT_EQ(split.train[1].item<int64_t>(), 5);
  EXPECT_THAT(message_of([&] { read_search_split(path, 40000); }), HasSubstr("positions from 0 to 39999"));
  const Tensor labels = at::arange(50000, at::TensorOptions().dtype(at::kLong)).remainder(10);
  const SearchSplit some = make_search_split(labels, 10, {.file = path, .train_size = 500});
  EXPECT_THAT(class_counts(labels, some.train, 10), Each(50));
  EXPECT_THAT(class_counts(labels, some.valid, 10), Each(50));
  EXPECT_TRUE(at::isin(some.train, split.train).all().item<bool>());
  EXPECT_TRUE(at::isin(some.valid, split.valid).all().item<bool>());
}

}  // namespace
}  // namespace bilevel::test
