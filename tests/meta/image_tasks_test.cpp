#include "bilevel/meta/image_tasks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/messages.h"
#include "tests/meta/image_identity.h"
#include "tests/meta/same_tasks.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using meta::ClassParts;
using meta::ImageTasks;
using meta::ImageTaskSet;
using meta::Part;
using meta::PixelScale;
using meta::TaskShape;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 22 classes of 6 or 7 images of 1 x 2 pixels.
ImageTaskSet identified(uint64_t seed = 0) {
  ImageTaskSet set;
  set.name = "made-up";
  std::vector<int64_t> pixels;
  for (int64_t k = 0; k < 22; ++k) {
    const int64_t count = 6 + k % 2;
    for (int64_t i = 0; i < count; ++i) pixels.insert(pixels.end(), {k, i});
    set.images.begin.push_back(set.images.begin.back() + count);
    set.images.names.push_back("class " + std::to_string(k));
  }
  set.images.images = at::tensor(pixels, at::kLong).to(at::kByte).view({-1, 1, 1, 2});
  set.parts = meta::split_classes(22, 10, 6, 6, seed);
  set.scale = {{0}, {1}};
  return set;
}

TEST(ImageTasks, keep_parts_labels_and_examples_apart) {
  const TaskShape shape{5, 2, 3};
  expect_honest_tasks(ImageTasks(identified(), shape, 4, doubles()), shape, 60);
}

TEST(ImageTasks, are_a_pure_function_of_seed_part_and_number) {
  expect_replayable([](uint64_t seed) {
    return std::make_unique<ImageTasks>(identified(), TaskShape{5, 2, 3}, seed, floats());
  });
}

// The name may be a path, which a user may spell in several ways.
TEST(ImageTasks, do_not_depend_on_a_name) {
  ImageTaskSet renamed = identified();
  renamed.name = "elsewhere";
  const ImageTasks one(identified(), {5, 2, 3}, 4, floats()), other(renamed, {5, 2, 3}, 4, floats());
  EXPECT_TRUE(same_bits(one.tasks(Part::train, 0, 3), other.tasks(Part::train, 0, 3)));
}

TEST(ImageTasks, have_the_asked_shapes_and_labels) {
  const TaskShape shape{4, 2, 3};
  expect_shapes(ImageTasks(identified(), shape, 0, doubles()), shape, doubles());
  expect_shapes(ImageTasks(identified(), shape, 0, floats()), shape, floats());
}

// A class of n images is drawn without favour: every image of it comes, and about as often.
TEST(ImageTasks, draw_every_image) {
  const ImageTasks source(identified(), {2, 1, 1}, 0, doubles());
  const meta::TaskBatch batch = source.tasks(Part::train, 0, 4000);
  std::map<Identity, int> counts;
  for (int64_t task = 0; task < 4000; ++task) {
    for (int64_t i = 0; i < 2; ++i) ++counts[identity(batch.train_inputs[task][i])];
  }
  const ImageTaskSet set = identified();
  int64_t images = 0;
  for (const int64_t k : set.parts.train) images += set.images.count(k);
  EXPECT_EQ(static_cast<int64_t>(counts.size()), images);
  for (const auto& [who, count] : counts) {
    // 8000 draws over 10 classes of 6 or 7: 133 or 114 expected, with a deviation of 12.
    EXPECT_GT(count, 60) << who.first;
    EXPECT_LT(count, 200) << who.first;
  }
}

TEST(ImageTasks, scale_pixels_by_channel) {
  const Tensor bytes = at::tensor({0, 255, 10, 20}, at::kLong).to(at::kByte).view({1, 2, 1, 2});
  const Tensor numbers = meta::scale_pixels(bytes, {{255, 10}, {-255, 5}}, doubles());
  EXPECT_TRUE(at::equal(numbers, at::tensor({1., 0., 0., 2.}, doubles()).view({1, 2, 1, 2})));
}

TEST(ImageTasks, measure_training_classes_alone) {
  ImageTaskSet set = identified();
  set.parts = {{1, 3}, {0}, {2}};
  const PixelScale scale = meta::training_scale(set.images, set.parts);
  // Seven images each: pixels 1 and 3 seven times, 0 to 6 twice.
  const double mean = (7 * 1 + 7 * 3 + 2 * 21) / 28.0;
  const double squares = (7 * 1 + 7 * 9 + 2 * 91) / 28.0;
  ASSERT_EQ(scale.mean.size(), 1U);
  EXPECT_DOUBLE_EQ(scale.mean[0], mean);
  EXPECT_DOUBLE_EQ(scale.deviation[0], std::sqrt(squares - mean * mean));
}

TEST(ImageTasks, split_classes_in_proportion) {
  const ClassParts parts = meta::split_classes(1623, 1200, 100, 323, 5);
  EXPECT_EQ(parts.train.size(), 1200U);
  EXPECT_EQ(parts.valid.size(), 100U);
  EXPECT_EQ(parts.test.size(), 323U);
  std::vector<int64_t> all = parts.train;
  all.insert(all.end(), parts.valid.begin(), parts.valid.end());
  all.insert(all.end(), parts.test.begin(), parts.test.end());
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(1623);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(parts.train, meta::split_classes(1623, 1200, 100, 323, 5).train);
  EXPECT_NE(parts.train, meta::split_classes(1623, 1200, 100, 323, 6).train);
  const ClassParts few = meta::split_classes(25, 64, 16, 20, 0);
  EXPECT_THAT((std::vector<size_t>{few.train.size(), few.valid.size(), few.test.size()}),
              ElementsAre(16, 4, 5));
  for (int64_t classes = 0; classes < 9; ++classes) {
    const ClassParts some = meta::split_classes(classes, 1, 1, 1, 0);
    EXPECT_EQ(static_cast<int64_t>(some.train.size() + some.valid.size() + some.test.size()), classes);
  }
}

TEST(ImageTasks, name_what_is_too_few) {
  EXPECT_THAT(
      message([] {
        ImageTasks(identified(), {7, 1, 1}, 0, floats());
      }),
      AllOf(HasSubstr("ways = 7"), HasSubstr("made-up has 6 valid classes"), HasSubstr("at most 6 ways")));
  ImageTaskSet set = identified();
  set.parts = {{1, 3, 4}, {5, 7}, {9, 11}};
  EXPECT_THAT(message([&] {
                ImageTasks(set, {2, 1, 6}, 0, floats());
              }),
              AllOf(HasSubstr("shots = 1 and queries = 6"),
                    HasSubstr("class class 4 of made-up has 6 images"), HasSubstr("takes 7 different ones")));
}

TEST(ImageTasks, refuse_a_class_in_two_parts) {
  ImageTaskSet set = identified();
  set.parts = {{1, 3, 4}, {5, 7}, {9, 3}};
  EXPECT_THAT(message([&] { set.validate(); }),
              HasSubstr("class class 3 is in the train part and in the test part"));
  set.parts = {{1, 3, 4}, {5, 22}, {9, 8}};
  EXPECT_THAT(message([&] { set.validate(); }), HasSubstr("class 22 of the valid part: must be 0 to 21"));
  set = identified();
  set.scale = {{0, 0}, {1, 1}};
  EXPECT_THAT(message([&] { set.validate(); }), HasSubstr("a scale of 2 channels for images of 1"));
}

}  // namespace
}  // namespace bilevel::test
