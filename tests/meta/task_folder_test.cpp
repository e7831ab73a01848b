#include "bilevel/meta/task_folder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "bilevel/data/png.h"
#include "bilevel/meta/task_data.h"
#include "tests/data/png_files.h"
#include "tests/messages.h"
#include "tests/meta/image_identity.h"
#include "tests/meta/same_tasks.h"

namespace bilevel::test {
namespace {

using meta::ImageTasks;
using meta::ImageTaskSet;
using meta::Part;
using meta::TaskShape;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 2 x 1 grey pixels: the class and the number of the image.
std::string picture(int of_class, int number) {
  return png_file(2, 1, grey, 8, std::string{'\0', static_cast<char>(of_class), static_cast<char>(number)});
}

class TaskFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_png()) GTEST_SKIP() << "SKIPPED: a build without libpng";
  }
  void put_classes(const std::string& below, int from, int to, int images = 4) const {
    for (int k = from; k < to; ++k) {
      for (int i = 0; i < images; ++i) {
        folder_.put(fmt::format("{}class{:02}/{}.png", below, k, i), picture(k, i));
      }
    }
  }
  void put_parts() const {
    put_classes("train/", 0, 6);
    put_classes("val/", 6, 9);
    put_classes("test/", 9, 13);
  }
  ImageTaskSet read() const { return meta::read_task_folder(folder_.path(), 0); }
  // The same without a scale, so that tasks can be read back.
  ImageTaskSet plain() const {
    ImageTaskSet set = read();
    set.scale = {{0}, {1}};
    return set;
  }
  std::string refusal() const {
    return message<std::runtime_error>([&] { read(); });
  }
  TemporaryFolder folder_;
};

TEST_F(TaskFolder, reads_classes_that_are_parted_already) {
  put_parts();
  const TaskShape shape{3, 1, 2};
  const auto met = expect_honest_tasks(ImageTasks(plain(), shape, 0, at::kFloat), shape, 60);
  EXPECT_THAT(met[0], ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(met[1], ElementsAre(6, 7, 8));
  EXPECT_THAT(met[2], ElementsAre(9, 10, 11, 12));
  expect_replayable([&](uint64_t seed) {
    return std::make_unique<ImageTasks>(read(), TaskShape{3, 1, 2}, seed, at::kFloat);
  });
}

TEST_F(TaskFolder, parts_classes_alike_for_every_seed) {
  put_classes("", 0, 25);
  const TaskShape shape{4, 1, 2};
  const auto met = expect_honest_tasks(ImageTasks(plain(), shape, 0, at::kFloat), shape, 80);
  EXPECT_EQ(met[0].size(), 16U);
  EXPECT_EQ(met[1].size(), 4U);
  EXPECT_EQ(met[2].size(), 5U);
  // What another seed draws from the test part are other tasks of the same classes.
  EXPECT_EQ(expect_honest_tasks(ImageTasks(plain(), shape, 7, at::kFloat), shape, 80), met);
  const auto digest = [&](uint64_t seed) {
    meta::TaskDataOptions options;
    options.data = folder_.path();
    options.shape = shape;
    options.seed = seed;
    return meta::load_task_data(options).digest;  // of the parts too
  };
  EXPECT_EQ(digest(0), digest(1));
  EXPECT_NE(digest(0), "");
}

TEST_F(TaskFolder, measures_training_images_and_gives_grey_three_channels_beside_colour) {
  put_classes("train/", 0, 2, 3);
  put_classes("valid/", 2, 4, 3);
  for (const char* name : {"test/red/0.png", "test/red/1.png", "test/blue/0.png"}) {
    folder_.put(name, plain_png(2, 1, 9, rgb));
  }
  const ImageTaskSet set = read();
  EXPECT_EQ(set.images.images.size(1), 3);
  EXPECT_THAT(set.images.names, ElementsAre("class00", "class01", "class02", "class03", "blue", "red"));
  EXPECT_EQ(set.images.count(5), 2);
  for (size_t c = 0; c < 3; ++c) EXPECT_DOUBLE_EQ(set.scale.mean[c], (3 * 0 + 3 * 1 + 2 * 3) / 12.0);
  EXPECT_TRUE(at::equal(set.images.images[4][0], set.images.images[4][2]));
  EXPECT_EQ(meta::read_task_folder(folder_.path(), 8).images.images.size(3), 8);
}

TEST_F(TaskFolder, names_what_is_wrong) {
  put_parts();
  folder_.put("val/class01/0.png", picture(1, 0));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("val/class01: expected classes that are in one part only"),
                               HasSubstr("train/class01 too")));
  const TemporaryFolder two;
  two.put("train/a/0.png", picture(0, 0));
  two.put("test/b/0.png", picture(0, 0));
  EXPECT_THAT(message<std::runtime_error>([&] { meta::read_task_folder(two.path(), 0); }),
              HasSubstr("expected val or valid beside train and test, found neither"));
  EXPECT_THAT(message<std::runtime_error>([&] { meta::read_task_folder(two.at("none"), 0); }),
              HasSubstr("none: expected a folder"));
}

TEST_F(TaskFolder, brings_images_of_another_size_to_that_of_the_training_classes) {
  put_parts();
  folder_.put("test/class09/9.png", plain_png(3, 1, 0));
  EXPECT_EQ(read().images.images.size(3), 2);
  EXPECT_THAT(read().note, HasSubstr("/test: 1 of "));
  const TemporaryFolder parts;
  for (const char* name : {"train/a", "train/b", "val/c", "val/d"}) {
    parts.put(std::string(name) + "/0.png", plain_png(2, 1, 0));
  }
  for (const char* name : {"test/e", "test/f"}) parts.put(std::string(name) + "/0.png", plain_png(2, 2, 0));
  const ImageTaskSet set = meta::read_task_folder(parts.path(), 0);
  EXPECT_EQ(set.images.images.size(2), 1);
  EXPECT_EQ(set.note, parts.path() + "/test: 2 of 2 pictures were resized to 2 x 1 pixels, as in " +
                          parts.path() + "/train");
}

TEST_F(TaskFolder, names_a_damaged_file_and_an_empty_class) {
  put_parts();
  folder_.put("val/class07/2.png", picture(7, 2).substr(0, 50));
  EXPECT_THAT(refusal(), HasSubstr("val/class07/2.png: byte "));
  folder_.put("val/class07/2.png", picture(7, 2));
  folder_.put("train/empty/readme.txt", "");
  EXPECT_THAT(refusal(), HasSubstr("train/empty: expected PNG or JPEG files of the class, found none"));
}

TEST_F(TaskFolder, names_too_few_classes_and_images) {
  put_parts();
  EXPECT_THAT(message([&] {
                ImageTasks(read(), {4, 1, 1}, 0, at::kFloat);
              }),
              AllOf(HasSubstr("ways = 4"), HasSubstr("3 valid classes")));
  EXPECT_THAT(message([&] {
                ImageTasks(read(), {3, 1, 4}, 0, at::kFloat);
              }),
              AllOf(HasSubstr("queries = 4"), HasSubstr("class class00"), HasSubstr("has 4 images")));
}

}  // namespace
}  // namespace bilevel::test
