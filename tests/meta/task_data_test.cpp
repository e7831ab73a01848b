#include "bilevel/meta/task_data.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "bilevel/data/omniglot.h"
#include "bilevel/data/png.h"
#include "bilevel/data/zip.h"
#include "tests/data/png_files.h"
#include "tests/messages.h"
#include "tests/meta/same_tasks.h"

namespace bilevel::test {
namespace {

using meta::load_task_data;
using meta::Part;
using meta::TaskData;
using meta::TaskDataOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

TaskDataOptions options(const std::string& data) {
  TaskDataOptions result;
  result.data = data;
  result.shape = {5, 1, 3};
  return result;
}

TEST(TaskData, makes_what_needs_no_files) {
  const TaskData blobs = load_task_data(options("blobs"));
  EXPECT_FALSE(blobs.source->regression());
  EXPECT_EQ(blobs.summary, "blobs: inputs of 32; 64 training, 16 validation and 20 test classes");
  EXPECT_FALSE(blobs.scale.has_value());
  const TaskData sinusoids = load_task_data(options("sinusoids"));
  EXPECT_TRUE(sinusoids.source->regression());
  EXPECT_EQ(sinusoids.summary, "sinusoids: 1 points to learn from, 3 to be judged by");
  for (const char* name : {"blobs", "sinusoids"}) {
    expect_replayable([&](uint64_t seed) {
      TaskDataOptions seeded = options(name);
      seeded.seed = seed;
      return std::move(load_task_data(seeded).source);
    });
  }
}

TEST(TaskData, reads_a_folder) {
  if (!has_png()) GTEST_SKIP() << "SKIPPED: a build without libpng";
  const TemporaryFolder folder;
  for (int k = 0; k < 10; ++k) {
    for (int i = 0; i < 4; ++i) {
      folder.put(fmt::format("{}/{}.png", k, i), plain_png(6, 6, static_cast<unsigned char>(20 * k + i)));
    }
  }
  TaskDataOptions o = options(folder.path());
  o.shape = {2, 1, 3};
  o.image_size = 3;
  const TaskData data = load_task_data(o);
  EXPECT_THAT(data.summary, HasSubstr("inputs of 1 x 3 x 3; 6 training, 2 validation and 2 test classes"));
  ASSERT_TRUE(data.scale.has_value());
  o.shape.ways = 3;
  EXPECT_THAT(message([&] { load_task_data(o); }),
              AllOf(HasSubstr("ways = 3"), HasSubstr("2 valid classes")));
}

TEST(TaskData, refuses_options_that_do_not_fit) {
  EXPECT_THAT(message([] { load_task_data(options("blob")); }),
              AllOf(HasSubstr("data = blob: must be one of blobs, sinusoids, omniglot, fc100"),
                    HasSubstr("a folder with a subfolder")));
  TaskDataOptions o = options("blobs");
  o.image_size = 28;
  EXPECT_THAT(message([&] { o.validate(); }), HasSubstr("image_size = 28: blobs are not images"));
  o.data = "fc100";
  EXPECT_THAT(message([&] { o.validate(); }), HasSubstr("image_size = 28: fc100's images have 32"));
  o.image_size = -1;
  EXPECT_THAT(message([&] { o.validate(); }), HasSubstr("image_size = -1: must be 0"));
  o = options("blobs");
  o.tensors = o.tensors.dtype(at::kLong);
  EXPECT_THAT(message([&] { o.validate(); }), HasSubstr("must be a floating type"));
  const TemporaryFolder empty;
  for (const char* name : {"omniglot", "fc100"}) {
    o = options(name);
    o.folder = empty.path();
    EXPECT_THAT(message<std::runtime_error>([&] { load_task_data(o); }), HasSubstr(empty.path())) << name;
  }
}

// Which character a drawing is, by its pixels: sampled images are looked up among all of them.
TEST(TaskData, official_omniglot_has_disjoint_parts) {
  const std::string path = shared_data("omniglot");
  if (path.empty()) GTEST_SKIP() << "SKIPPED: ../shared/data/omniglot is missing";
  if (!has_png() || !has_zip()) GTEST_SKIP() << "SKIPPED: a build without libpng or libzip";
  TaskDataOptions o = options("omniglot");
  o.folder = path;
  o.shape = {20, 1, 4};
  const TaskData data = load_task_data(o);
  EXPECT_EQ(data.summary,
            "omniglot: inputs of 1 x 28 x 28; 1200 training, 100 validation and 323 test classes");

  const ClassImages all = read_omniglot({path, 28});
  const auto key = [](const Tensor& bytes) {
    const Tensor flat = bytes.contiguous();
    return std::string(reinterpret_cast<const char*>(flat.data_ptr<uint8_t>()),
                       static_cast<size_t>(flat.numel()));
  };
  std::map<std::string, int64_t> character;
  int64_t twice = 0;  // drawings that two people, or of two characters, made alike
  for (int64_t k = 0; k < all.classes(); ++k) {
    for (int64_t i = all.begin[static_cast<size_t>(k)]; i < all.begin[static_cast<size_t>(k) + 1]; ++i) {
      const auto [place, is_new] = character.emplace(key(all.images[i]), k);
      if (!is_new) {
        ++twice;
        if (place->second != k) place->second = -1;
      }
    }
  }
  EXPECT_LT(twice, 330) << "one in a hundred would spoil the look-up";
  std::map<int64_t, Part> part_of;
  for (const Part part : {Part::train, Part::valid, Part::test}) {
    SCOPED_TRACE(meta::part_name(part));
    const meta::TaskBatch batch = data.source->tasks(part, 0, 20);
    EXPECT_GE(batch.train_inputs.min().item<double>(), 0);
    EXPECT_EQ(batch.train_inputs.max().item<double>(), 1);
    EXPECT_LT(batch.train_inputs.mean().item<double>(), 0.15) << "paper is 0";
    const auto look = [&](const Tensor& inputs, const Tensor& targets) {
      const Tensor bytes = (255 - inputs * 255).round().to(at::kByte).flatten(0, 1);
      std::map<int64_t, int64_t> of_label;
      for (int64_t i = 0; i < bytes.size(0); ++i) {
        const auto found = character.find(key(bytes[i]));
        ASSERT_NE(found, character.end());
        if (found->second < 0) continue;
        const auto [place, unused] = part_of.emplace(found->second, part);
        ASSERT_EQ(place->second, part) << all.names[static_cast<size_t>(found->second)];
        // One label of one task is one character.
        const int64_t label = i / inputs.size(1) * 20 + targets.flatten()[i].item<int64_t>();
        ASSERT_EQ(of_label.emplace(label, found->second).first->second, found->second);
      }
    };
    look(batch.train_inputs, batch.train_targets);
    look(batch.valid_inputs, batch.valid_targets);
  }
  EXPECT_GT(part_of.size(), 500U);
}

}  // namespace
}  // namespace bilevel::test
