// The sets of a cleaning job: the split and the noise of a named set, and what a user's files must hold.
#include "bilevel/problems/cleaning_sets.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "bilevel/data/image_sets.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string named_folder() {
  const char* folder = std::getenv("BILEVEL_DATA");
  return folder != nullptr ? folder : "data";
}

TEST(CleaningSets, NamedSetIsBalancedDisjointAndNoisyOnce) {
  NamedCleaningOptions options{.set = "fashion-mnist", .folder = named_folder(), .train = 200, .valid = 100};
  try {
    find_image_set(options.set, options.folder);
  } catch (const std::runtime_error& error) {
    GTEST_SKIP() << error.what();
  }
  const CleaningSets sets = make_named_cleaning_sets(options);
  const ImageClasses all = load_image_classes(options.set, options.folder);
  EXPECT_TRUE(at::bincount(sets.clean, {}, 10).eq(20).all().item<bool>());
  EXPECT_TRUE(at::bincount(sets.valid.labels, {}, 10).eq(10).all().item<bool>());
  const Tensor both = at::cat({sets.train_index, sets.valid_index});
  EXPECT_EQ(std::get<0>(at::_unique(both)).numel(), 300);
  EXPECT_TRUE(all.train.labels.index_select(0, sets.train_index).equal(sets.clean));
  EXPECT_EQ(sets.test.size(), 70000 - 300);
  EXPECT_EQ(sets.test.features.columns(), 785);
  EXPECT_TRUE(sets.train.labels.ne(sets.clean).equal(sets.wrong));
  EXPECT_TRUE(sets.wrong.logical_and(sets.replaced.logical_not()).any().logical_not().item<bool>());
  EXPECT_NEAR(sets.replaced.to(at::kDouble).mean().item<double>(), 0.5, 0.15);
  // Pixels in [0, 1], and the ones behind them.
  const Tensor row = all.train.images[sets.train_index[3].item<int64_t>()].to(at::kFloat) / 255;
  EXPECT_TRUE(sets.train.features.dense[3].slice(0, 0, 784).equal(row));
  EXPECT_TRUE(sets.train.features.dense.select(1, 784).eq(1).all().item<bool>());

  const CleaningSets again = make_named_cleaning_sets(options);
  EXPECT_TRUE(again.train.labels.equal(sets.train.labels));
  options.seed = 1;
  options.test_on_rest = options.bias = false;
  const CleaningSets other = make_named_cleaning_sets(options);
  EXPECT_FALSE(other.train_index.equal(sets.train_index));
  EXPECT_EQ(other.test.size(), 10000);
  EXPECT_EQ(other.test_examples().features.size(1), 784);
}

TEST(CleaningSets, OptionsOutOfTheirBoundsAreNamed) {
  const auto refusal = [](const NamedCleaningOptions& options) {
    return message_of<std::invalid_argument>([&] { make_named_cleaning_sets(options); });
  };
  EXPECT_THAT(refusal({.set = "cifar10"}), HasSubstr("cifar10"));
  EXPECT_THAT(refusal({.train = 5}), HasSubstr("train_size = 5"));
  EXPECT_THAT(refusal({.valid = 70000}), HasSubstr("valid_size = 70000"));
  EXPECT_THAT(refusal({.corruption = 1.5}), HasSubstr("corruption = 1.5"));
}

TEST(CleaningSets, FilesGiveClassesByTheirOwnLabels) {
  const TemporaryFolder folder;
  CleaningFileOptions options;
  options.train.features = folder.put("train.csv", "1,0,-1\n0,1,4\n1,1,4\n2,2,-1\n");
  options.valid.features = folder.put("valid.csv", "1,0,4\n0,1,-1\n");
  const CleaningSets sets = read_cleaning_sets(options);
  EXPECT_EQ(sets.class_names, (std::vector<std::string>{"-1", "4"}));
  EXPECT_TRUE(sets.train.labels.equal(at::tensor({0, 1, 1, 0}).to(at::kLong)));
  EXPECT_EQ(sets.data().train.features.size(1), 3);
  EXPECT_EQ(sets.test.size(), 0);
  EXPECT_FALSE(sets.wrong.defined());
  EXPECT_EQ(labelled_rows(sets.valid).size(), 2);

  const auto refusal = [&](const std::string& valid, int64_t classes = 0) {
    options.valid.features = folder.put("valid.csv", valid);
    options.classes = classes;
    return message_of([&] { read_cleaning_sets(options); });
  };
  EXPECT_THAT(refusal("1,0,4\n0,1,3\n"), AllOf(HasSubstr("valid.csv: example 1"), HasSubstr("found 3")));
  EXPECT_THAT(refusal("1,0,4\n0,1,4\n"), AllOf(HasSubstr("valid.csv"), HasSubstr("two classes")));
  EXPECT_THAT(refusal("1,0,4\n0,1,-1\n", 4), AllOf(HasSubstr("train.csv: example 0"), HasSubstr("found -1")));
  options.train.features = folder.put("train.csv", "1,0,0\n0,1,3\n1,1,3\n2,2,0\n3,3,1\n1,3,1\n");
  EXPECT_THAT(refusal("1,0,3\n0,1,0\n", 4), AllOf(HasSubstr("train.csv"), HasSubstr("none of label 2")));
  EXPECT_THAT(refusal("1,0,3\n0,1,0\n"), AllOf(HasSubstr("valid.csv"), HasSubstr("none of label 1")));
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              options.classes = 1'000'000'000;
              read_cleaning_sets(options);
            }),
            "classes = 1000000000: must be 2 to 6, since each needs one of the 6 training examples");
  options.train.features = folder.put("train.csv", "1,0,0\n0,1,1\n1,1,2\n2,2,3\n");
  EXPECT_THAT(refusal("1,0,3\n0,1,0\n"), AllOf(HasSubstr("train.csv"), HasSubstr("4 different labels")));
}

TEST(CleaningSets, SparseFilesKeepTheirZeros) {
  const TemporaryFolder folder;
  CleaningFileOptions options;
  options.train.features = folder.put("train.svm", "1 1:1\n2 3:1\n1 2:1\n2 1:4\n");
  options.valid.features = folder.put("valid.svm", "1 1:1\n2 3:1\n");
  const CleaningSets sets = read_cleaning_sets(options);
  ASSERT_TRUE(sets.train.features.is_sparse());
  EXPECT_EQ(labelled_rows(sets.train).features.features(), 4);
  EXPECT_THAT(message_of<std::invalid_argument>([&] { (void)sets.data(); }), HasSubstr("sparse"));
}

}  // namespace
}  // namespace bilevel::test
