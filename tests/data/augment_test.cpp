#include "bilevel/data/augment.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bilevel/core/random.h"
#include "tests/data/files.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<double> mean{125.3, 123.0, 113.9};
const std::vector<double> deviation{63.0, 62.1, 66.7};

Tensor random_images(int64_t count, int64_t channels, int64_t height, int64_t width) {
  Random random(3);
  Tensor images = at::empty({count, channels, height, width}, at::TensorOptions().dtype(at::kByte));
  uint8_t* byte = images.data_ptr<uint8_t>();
  for (int64_t i = 0; i < images.numel(); ++i) byte[i] = static_cast<uint8_t>(random.below(256));
  return images;
}

Normalization normalization(at::ScalarType type = at::kDouble) {
  return {mean, deviation, at::TensorOptions().dtype(type)};
}

Tensor positions(const std::vector<int64_t>& list) {
  return at::tensor(list, at::TensorOptions().dtype(at::kLong));
}

// The pipeline step by step, each on a whole image of its own: flip, pad with zeros, crop, normalise, cut
// out.
Tensor reference(const Tensor& images, const Tensor& index, const AugmentOptions& options,
                 const Tensor& numbers) {
  std::vector<Tensor> batch;
  const int64_t height = images.size(2), width = images.size(3), padding = options.crop_padding;
  for (int64_t i = 0; i < index.numel(); ++i) {
    const auto number = [&](int64_t k) { return numbers[i][k].item<int64_t>(); };
    Tensor image = images[index[i].item<int64_t>()].to(at::kDouble);
    if (options.flip && number(0) == 1) image = image.flip({2});
    Tensor padded = at::zeros({image.size(0), height + 2 * padding, width + 2 * padding}, image.options());
    padded.narrow(1, padding, height).narrow(2, padding, width).copy_(image);
    image = padded.narrow(1, padding > 0 ? number(1) : 0, height)
                .narrow(2, padding > 0 ? number(2) : 0, width)
                .clone();
    for (int64_t c = 0; c < image.size(0); ++c) {
      image[c].sub_(mean[static_cast<size_t>(c)]).div_(deviation[static_cast<size_t>(c)]);
    }
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t half = options.cutout / 2;
        if (y >= number(3) - half && y < number(3) + half && x >= number(4) - half && x < number(4) + half) {
          image.select(1, y).select(1, x).zero_();
        }
      }
    }
    batch.push_back(image);
  }
  return at::stack(batch);
}

TEST(Augment, EqualsTheSteps) {
  const Tensor images = random_images(7, 3, 9, 12);
  const Tensor index = positions({6, 0, 3, 3, 1, 5});
  const std::vector<AugmentOptions> all{{4, true, 0},  {4, true, 6},  {0, true, 0}, {3, false, 5},
                                        {0, false, 4}, {9, true, 20}, {0, false, 0}};
  for (const AugmentOptions& options : all) {
    const Tensor numbers = draw_augmentation(6, 9, 12, options, 11);
    const Tensor expected = reference(images, index, options, numbers);
    const Tensor loop = prepare_with(images, index, normalization(), options, numbers);
    EXPECT_LT((loop - expected).abs().max().item<double>(), 1e-14) << options.crop_padding;
    EXPECT_TRUE(prepare_by_operations(images, index, normalization(), options, numbers).equal(loop));
    EXPECT_TRUE(prepare_batch(images, index, normalization(), options, 11).equal(loop));
    EXPECT_TRUE(
        prepare_batch(images, index, normalization(at::kFloat), options, 11).equal(loop.to(at::kFloat)));
  }
}

TEST(Augment, ReachesEveryCornerOfTheCrop) {
  const Tensor images = random_images(1, 3, 8, 8);
  const Tensor index = positions({0});
  const AugmentOptions options{4, true, 0};
  for (const int64_t flip : {0, 1}) {
    for (const int64_t top : {0, 4, 8}) {
      for (const int64_t left : {0, 4, 8}) {
        const Tensor numbers = positions({flip, top, left, 0, 0}).view({1, 5});
        EXPECT_LT((prepare_with(images, index, normalization(), options, numbers) -
                   reference(images, index, options, numbers))
                      .abs()
                      .max()
                      .item<double>(),
                  1e-14)
            << flip << ' ' << top << ' ' << left;
      }
    }
  }
  const Tensor drawn = draw_augmentation(2000, 32, 24, options, 5);
  const std::vector<int64_t> ends{1, 8, 8, 31, 23};
  for (int64_t k = 0; k < 5; ++k) {
    EXPECT_EQ(drawn.select(1, k).min().item<int64_t>(), 0) << k;
    EXPECT_EQ(drawn.select(1, k).max().item<int64_t>(), ends[static_cast<size_t>(k)]) << k;
  }
  // Half of 2000 coins, within five standard deviations.
  EXPECT_NEAR(drawn.select(1, 0).sum().item<double>(), 1000, 5 * std::sqrt(500));
}

TEST(Augment, FollowsAllBitsOfItsSeed) {
  const Tensor images = random_images(16, 3, 16, 16);
  const AugmentOptions options{4, true, 8};
  const auto batch = [&](uint64_t seed) {
    return prepare_batch(images, Tensor(), normalization(), options, seed);
  };
  EXPECT_TRUE(batch(1).equal(batch(1)));
  EXPECT_FALSE(batch(1).equal(batch(2)));
  EXPECT_FALSE(batch(1).equal(batch(1 + (uint64_t{1} << 40))));
  // An option that is switched off leaves what the others draw as it was.
  const Tensor all = draw_augmentation(16, 16, 16, options, 1);
  EXPECT_TRUE(draw_augmentation(16, 16, 16, {0, false, 8}, 1).narrow(1, 3, 2).equal(all.narrow(1, 3, 2)));
  EXPECT_TRUE(draw_augmentation(16, 16, 16, {0, true, 0}, 1).select(1, 0).equal(all.select(1, 0)));
}

TEST(Augment, CutsOutASquareOfZeros) {
  const Tensor images = at::full({300, 3, 32, 32}, 200, at::TensorOptions().dtype(at::kByte));
  const AugmentOptions options{0, false, 16};
  const Tensor batch = prepare_batch(images, Tensor(), normalization(), options, 4);
  const Tensor numbers = draw_augmentation(300, 32, 32, options, 4);
  const Tensor zeros = batch.eq(0).sum({2, 3});
  const auto length = [](int64_t centre) {
    return std::min<int64_t>(centre + 8, 32) - std::max<int64_t>(centre - 8, 0);
  };
  int64_t whole = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const int64_t area = length(numbers[i][3].item<int64_t>()) * length(numbers[i][4].item<int64_t>());
    for (int64_t c = 0; c < 3; ++c) ASSERT_EQ(zeros[i][c].item<int64_t>(), area) << i;
    whole += area == 256 ? 1 : 0;
  }
  EXPECT_GT(whole, 0);
  EXPECT_LT(whole, 300);
}

TEST(Augment, WithoutItIsPlain) {
  const Tensor images = random_images(5, 3, 6, 7);
  const Tensor index = positions({4, 4, 0});
  const Tensor plain = prepare_plain(images, index, normalization());
  EXPECT_TRUE(prepare_batch(images, index, normalization(), {0, false, 0}, 9).equal(plain));
  EXPECT_TRUE(plain[1].equal(prepare_plain(images, Tensor(), normalization())[4]));
  EXPECT_DOUBLE_EQ(plain[2][1][5][6].item<double>(), (images[0][1][5][6].item<double>() - 123.0) / 62.1);
  EXPECT_TRUE(prepare_by_operations(images, index, normalization(), {}, Tensor()).equal(plain));
  EXPECT_TRUE(prepare_plain(images, index, normalization(at::kBFloat16)).equal(plain.to(at::kBFloat16)));
  EXPECT_EQ(prepare_batch(images, positions({}), normalization(), {}, 9).sizes(),
            (std::vector<int64_t>{0, 3, 6, 7}));
}

TEST(Augment, GivesTheSamePixelsOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "SKIPPED: no GPU";
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const Tensor images = random_images(64, 3, 32, 32);
  const Tensor labels = at::arange(64, at::TensorOptions().dtype(at::kLong));
  const DeviceImages here(images, labels, mean, deviation, options);
  const DeviceImages there(images, labels, mean, deviation, options.device(at::kCUDA));
  const Tensor index = positions({5, 63, 0, 17, 17});
  const AugmentOptions augment{4, true, 16};
  const Tensor expected = here.batch(index, augment, 7);
  EXPECT_TRUE(there.batch(index, augment, 7).cpu().equal(expected));
  EXPECT_TRUE(there.batch(index.to(at::kCUDA), augment, 7).cpu().equal(expected));
  EXPECT_TRUE(there.plain(index).cpu().equal(here.plain(index)));
  EXPECT_TRUE(there.plain(Tensor()).cpu().equal(here.plain(Tensor())));
  EXPECT_TRUE(there.batch_labels(index).cpu().equal(index));
}

TEST(Augment, HoldsASetOnItsDevice) {
  const Tensor images = random_images(4, 3, 5, 5);
  const DeviceImages set(images, positions({3, 1, 0, 2}), mean, deviation,
                         at::TensorOptions().dtype(at::kFloat));
  EXPECT_EQ(set.size(), 4);
  EXPECT_TRUE(set.batch_labels(positions({2, 0})).equal(positions({0, 3})));
  EXPECT_TRUE(set.batch_labels(Tensor()).equal(set.labels));
  EXPECT_EQ(set.plain(Tensor()).scalar_type(), at::kFloat);
  EXPECT_TRUE(set.batch(positions({1}), {}, 3)
                  .equal(prepare_batch(images, positions({1}), normalization(at::kFloat), {}, 3)));
}

TEST(Augment, NamesWhatIsWrong) {
  const Tensor images = random_images(4, 3, 5, 5);
  const auto message = [&](const Tensor& index, const AugmentOptions& options) {
    return message_of<std::invalid_argument>(
        [&] { prepare_batch(images, index, normalization(), options, 1); });
  };
  EXPECT_THAT(message(positions({0, 4}), {}), HasSubstr("index[1] = 4: must be 0 to 3"));
  EXPECT_THAT(message(positions({-1}), {}), HasSubstr("index[0] = -1"));
  EXPECT_THAT(message(at::zeros({2}), {}), HasSubstr("int64"));
  EXPECT_THAT(message(Tensor(), {-1, true, 0}), HasSubstr("crop_padding = -1"));
  EXPECT_THAT(message(Tensor(), {0, true, 65537}), HasSubstr("cutout = 65537: must be 0 (none) to 65536"));
  EXPECT_THAT(message_of<std::invalid_argument>(
                  [&] { prepare_plain(images, Tensor(), Normalization({0.0}, {1.0}, at::TensorOptions())); }),
              HasSubstr("has 1 channels, the images have 3"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] {
                prepare_with(images, Tensor(), normalization(), {}, at::zeros({4, 4}, at::kLong));
              }),
              HasSubstr("numbers: must be int64, 4 x 5"));
  EXPECT_THAT(
      message_of<std::invalid_argument>([&] {
        prepare_with(images, positions({2}), normalization(), {}, positions({0, 8, 9, 0, 0}).view({1, 5}));
      }),
      HasSubstr("numbers[0][2] = 9: must be 0 to 8"));
  for (const double bad : {0.0, -1.0, std::nan("")}) {
    EXPECT_THAT(message_of<std::invalid_argument>([&] {
                  Normalization({1.0, 2.0}, {1.0, bad}, at::TensorOptions());
                }),
                HasSubstr("std[1]"));
  }
  EXPECT_THAT(message_of<std::invalid_argument>(
                  [&] { DeviceImages(images, positions({1}), mean, deviation, at::TensorOptions()); }),
              HasSubstr("one for each image"));
}

}  // namespace
}  // namespace bilevel::test
