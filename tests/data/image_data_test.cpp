#include "bilevel/data/image_data.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>

#include "bilevel/data/image_sets.h"
#include "bilevel/data/png.h"
#include "bilevel/data/search_split.h"
#include "tests/data/png_files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ImageData, MeasuresChannels) {
  std::vector<double> mean, std;
  const Tensor images = at::tensor({0, 2, 7, 7, 4, 6, 7, 7}).to(at::kByte).view({2, 2, 1, 2});
  measure_channels(images, mean, std);
  EXPECT_THAT(mean, ElementsAre(3, 7));
  EXPECT_THAT(std, ElementsAre(std::sqrt(5.0), 1));  // (9 + 1 + 1 + 9) / 4; a constant channel stays unscaled
  measure_channels(images.transpose(2, 3), mean, std);
  EXPECT_THAT(mean, ElementsAre(3, 7));
}

TEST(ImageData, ReadsIdxFilesWithTheirTestSet) {
  const TemporaryFolder folder;
  ImageDataOptions options;
  options.data = folder.put("images", idx({3, 1, 2}, "abcdef"));
  options.labels = folder.put("labels", idx({3}, "\x05\x02\x05"));
  options.test_images = folder.put("test-images", idx({1, 1, 2}, "xy"));
  options.test_labels = folder.put("test-labels", idx({1}, "\x05"));
  const ImageData data = load_image_data(options);
  EXPECT_EQ(data.train.images.sizes(), (std::vector<int64_t>{3, 1, 1, 2}));
  EXPECT_EQ(data.train.images[1][0][0][1].item<int64_t>(), 'd');
  EXPECT_TRUE(data.train.labels.equal(at::tensor({1, 0, 1}).to(at::kLong)));
  EXPECT_TRUE(data.test.labels.equal(at::tensor({1}).to(at::kLong)));
  EXPECT_EQ(data.classes, 2);
  EXPECT_THAT(data.class_names, ElementsAre("2", "5"));
  EXPECT_THAT(data.mean, ElementsAre(DoubleNear('a' + 2.5, 1e-12)));
  EXPECT_THAT(data.std, ElementsAre(DoubleNear(std::sqrt(17.5 / 6), 1e-12)));
  options.image_size = 2;
  EXPECT_EQ(load_image_data(options).test.images.sizes(), (std::vector<int64_t>{1, 1, 2, 2}));
  options.image_size = 0;
  options.test_images = folder.put("test-images", idx({1, 2, 2}, "xyzw"));
  EXPECT_THAT(message_of([&] { load_image_data(options); }),
              AllOf(HasSubstr("1 channels of 2 x 1, the test images 1 channels of 2 x 2"),
                    HasSubstr("--image-size")));
  options.test_labels = folder.put("test-labels", idx({1}, "\x03"));
  EXPECT_THAT(message_of([&] { load_image_data(options); }),
              AllOf(StartsWith(options.test_labels), HasSubstr("among 2 5, found 3")));
  options.labels = folder.put("labels", idx({2}, "\x05\x02"));
  EXPECT_THAT(message_of([&] { load_image_data(options); }),
              AllOf(StartsWith(options.labels), HasSubstr("3 labels, one for each image, found 2")));
  options.data = folder.put("images", idx({3, 2, 1, 1}, "abcdef"));
  EXPECT_THAT(message_of([&] { load_image_data(options); }), HasSubstr("found Byte of 3 x 2 x 1 x 1"));
}

TEST(ImageData, HoldsOutATestSetByClass) {
  const TemporaryFolder folder;
  std::string pixels, labels;
  for (int i = 0; i < 50; ++i) {
    pixels += static_cast<char>(i);
    labels += static_cast<char>(i % 5 == 0 ? 1 : 0);
  }
  ImageDataOptions options;
  options.data = folder.put("images", idx({50, 1, 1, 1}, pixels));
  options.labels = folder.put("labels", idx({50}, labels));
  const ImageData data = load_image_data(options);
  EXPECT_EQ(data.train.labels.numel(), 40);
  EXPECT_EQ(data.test.labels.numel(), 10);
  EXPECT_EQ(data.test.labels.sum().item<int64_t>(), 2);
  const Tensor all = at::cat({data.train.images, data.test.images}).flatten();
  EXPECT_TRUE(std::get<0>(all.sort()).equal(at::arange(50).to(at::kByte)));
  EXPECT_TRUE(data.test.images.flatten().remainder(5).eq(0).to(at::kLong).equal(data.test.labels));
  EXPECT_TRUE(load_image_data(options).test.images.equal(data.test.images));
  options.test_fraction = 0.001;
  EXPECT_THAT(message_of<std::invalid_argument>([&] { load_image_data(options); }),
              HasSubstr("test_fraction = 0.001: takes 0 of 50 images"));
}

// Every image is one grey value, its position: whatever a search with any seed sees, at any size, no training
// at any other size tests on.
TEST(ImageData, NoSearchSeesWhatATrainingTestsOn) {
  const TemporaryFolder folder;
  std::string pixels, labels;
  for (int i = 0; i < 250; ++i) {
    pixels += std::string(4, static_cast<char>(i));
    labels += static_cast<char>(i * i % 7 % 3);
  }
  ImageDataOptions options;
  options.data = folder.put("images", idx({250, 2, 2}, pixels));
  options.labels = folder.put("labels", idx({250}, labels));
  const auto positions = [](const Tensor& images) {
    const Tensor first = images.flatten(1).select(1, 0).to(at::kLong);
    return std::get<0>(first.sort());
  };
  const ImageData tested = load_image_data(options);
  const Tensor held_out = positions(tested.test.images);
  EXPECT_EQ(held_out.numel(), 50);
  EXPECT_TRUE(held_out.equal(std::get<0>(tested.held_out.sort())));
  for (const int64_t size : {0, 1, 3, 8}) {
    options.image_size = size;
    const ImageData searched = load_image_data(options);
    EXPECT_TRUE(positions(searched.test.images).equal(held_out)) << size;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      SearchSplitOptions halves;
      halves.seed = seed;
      const SearchSplit split = make_search_split(searched.train.labels, searched.classes, halves);
      const Tensor seen =
          positions(searched.train.images.index_select(0, at::cat({split.train, split.valid})));
      EXPECT_EQ(seen.numel(), 200);
      EXPECT_FALSE(at::isin(seen, held_out).any().item<bool>()) << "size " << size << ", seed " << seed;
    }
  }
}

TEST(ImageData, ReadsFoldersWithAndWithoutATestFolder) {
  if (!has_png()) GTEST_SKIP() << "SKIPPED: built without libpng";
  const TemporaryFolder folder;
  for (int i = 0; i < 5; ++i) {
    folder.put(fmt::format("all/cat/{}.png", i), plain_png(2, 2, static_cast<unsigned char>(i)));
    folder.put(fmt::format("all/dog/{}.png", i), plain_png(2, 2, static_cast<unsigned char>(100 + i)));
    folder.put(fmt::format("both/train/cat/{}.png", i), plain_png(2, 2, static_cast<unsigned char>(i)));
    folder.put(fmt::format("both/train/dog/{}.png", i), plain_png(2, 2, static_cast<unsigned char>(100 + i)));
  }
  folder.put("both/test/dog/a.png", plain_png(2, 2, 7, rgb));
  ImageDataOptions options;
  options.data = folder.at("all");
  const ImageData held = load_image_data(options);
  EXPECT_EQ(held.train.images.sizes(), (std::vector<int64_t>{8, 1, 2, 2}));
  EXPECT_EQ(held.test.labels.sum().item<int64_t>(), 1);  // one of each class
  EXPECT_TRUE(
      held.train.images.select(3, 0).select(2, 0).squeeze(1).ge(100).to(at::kLong).equal(held.train.labels));
  options.data = folder.at("both");
  const ImageData given = load_image_data(options);
  EXPECT_EQ(given.train.images.sizes(), (std::vector<int64_t>{10, 3, 2, 2}));
  EXPECT_TRUE(given.test.labels.equal(at::tensor({1}).to(at::kLong)));
  EXPECT_THAT(given.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(given.mean, Each(52));
  folder.put("both/test/cow/a.png", plain_png(2, 2, 7));
  EXPECT_THAT(message_of([&] { load_image_data(options); }),
              AllOf(StartsWith(folder.at("both/test/cow")), HasSubstr("a training class")));
}

TEST(ImageData, NamesTheOptionThatIsWrong) {
  const auto message = [](const ImageDataOptions& options) {
    return message_of<std::invalid_argument>([&] { load_image_data(options); });
  };
  EXPECT_THAT(message({.data = "svhn"}),
              AllOf(HasSubstr("data = svhn"), HasSubstr("cifar100"), HasSubstr("IDX")));
  EXPECT_THAT(message({.data = ""}), HasSubstr("data is empty"));
  EXPECT_THAT(message({.image_size = -1}), HasSubstr("image_size = -1"));
  EXPECT_THAT(message({.test_fraction = 1}), HasSubstr("test_fraction = 1"));
  EXPECT_THAT(message({.test_images = "x"}), HasSubstr("test_labels is missing"));
  EXPECT_THAT(message({.data = "mnist", .labels = "x"}), HasSubstr("belong to an IDX file"));
  const TemporaryFolder folder;
  EXPECT_THAT(message({.data = folder.put("images", "x")}), HasSubstr("--labels"));
  EXPECT_THAT(message_of([&] { load_image_data({.data = "cifar100", .folder = folder.path()}); }),
              HasSubstr("no package ships it"));
}

// Real sets, where they were fetched: BILEVEL_DATA names the folder given to `bilevel data get --to`.
TEST(ImageData, KnowsTheRealSets) {
  const char* named = std::getenv("BILEVEL_DATA");
  ImageDataOptions options;
  options.folder = named != nullptr ? named : "data";
  int seen = 0;
  for (const char* name : {"cifar10", "mnist"}) {
    options.data = name;
    try {
      find_image_set(name, options.folder);
    } catch (const std::runtime_error&) {
      continue;
    }
    ++seen;
    const ImageData data = load_image_data(options);
    const bool cifar = options.data == "cifar10";
    EXPECT_EQ(data.train.images.sizes(),
              cifar ? (std::vector<int64_t>{50000, 3, 32, 32}) : (std::vector<int64_t>{60000, 1, 28, 28}));
    EXPECT_EQ(data.test.images.size(0), 10000);
    EXPECT_EQ(data.classes, 10);
    std::vector<double> mean, std;
    measure_channels(data.train.images, mean, std);
    // The published constants are the training images', rounded.
    const std::vector<double> known = cifar ? std::vector{125.3, 123.0, 113.9} : std::vector{0.1307 * 255};
    const std::vector<double> spread = cifar ? std::vector{63.0, 62.1, 66.7} : std::vector{0.3081 * 255};
    for (size_t c = 0; c < known.size(); ++c) {
      EXPECT_NEAR(data.mean[c], known[c], 0.051);
      EXPECT_NEAR(mean[c], known[c], 0.051);
      EXPECT_NEAR(std[c], spread[c], 0.051);
    }
  }
  if (seen == 0) GTEST_SKIP() << "SKIPPED: set BILEVEL_DATA to a folder that has cifar10 or mnist";
}

}  // namespace
}  // namespace bilevel::test
