// Training a cell's network as a C++ program calls it, and counting the networks of cells.

#include "bilevel/jobs/train.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/count.h"
#include "bilevel/jobs/export.h"
#include "tests/cli/image_files.h"
#include "tests/temporary_folder.h"

namespace bilevel {
namespace {

using test::TemporaryFolder;

constexpr const char* cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|";

struct TrainImages {
  at::Tensor pixels, labels;
};
TrainImages draw_training_images() {
  const at::Tensor labels = at::arange(40, at::kLong) % 2;
  return {at::arange(40 * 64, at::kLong).mul(37).remainder(200).reshape({40, 8, 8}) +
              labels.mul(50).reshape({40, 1, 1}),
          labels};
}

void write_images(const TemporaryFolder& folder) {
  const auto [pixels, labels] = draw_training_images();
  std::ofstream(folder / "images", std::ios::binary) << test::idx({40, 8, 8}, pixels);
  std::ofstream(folder / "labels", std::ios::binary) << test::idx({40}, labels);
}

TrainJobOptions small_training(const TemporaryFolder& folder) {
  TrainJobOptions o;
  o.genotype = cell;
  o.channels = 2;
  o.cells = 1;
  o.data.data = folder / "images";
  o.data.labels = folder / "labels";
  o.train.epochs = 3;
  o.train.batch = 8;
  o.train.seed = 3;
  o.compute.dtype = "double";
  o.compute.threads = 1;
  return o;
}

TEST(TrainJob, InterruptedAndResumedItEndsInTheSameBitsAsInMemory) {
  const TemporaryFolder folder;
  write_images(folder);
  RunContext in_memory;
  const TrainJobResult expected = run_train(small_training(folder), in_memory);
  EXPECT_EQ(expected.end.status, RunStatus::finished);
  EXPECT_EQ(expected.folder, "");
  EXPECT_EQ(expected.state.history.size(), 3U);
  EXPECT_EQ(expected.train_images, 32);
  EXPECT_EQ(expected.test_images, 8);

  int asked = 0;
  {
    RunContext stopped({.keep = true, .out = folder / "run"}, {.interrupted = [&] { return ++asked == 6; }});
    EXPECT_EQ(run_train(small_training(folder), stopped).end.status, RunStatus::interrupted);
  }
  RunContext resumed({.keep = true, .resume = folder / "run"}, {});
  const TrainJobResult result = run_train(small_training(folder), resumed);
  EXPECT_TRUE(result.state.inner.w.equal(expected.state.inner.w));
  EXPECT_EQ(result.json.at("test_accuracy"), expected.json.at("test_accuracy"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/genotype.json"));
}

// The test set is held out of memory as it is of files, and channels are measured on what is left.
TEST(TrainJob, OnImagesInMemoryItIsThatOnTheSameImagesInFiles) {
  const TemporaryFolder folder;
  write_images(folder);
  RunContext first, second, third;
  const TrainJobResult from_files = run_train(small_training(folder), first);
  const TrainImages drawn = draw_training_images();
  ImageData images;
  images.train = {drawn.pixels.to(at::kByte).unsqueeze(1), drawn.labels};
  images.classes = 2;
  TrainJobOptions o = small_training(folder);
  o.data = {};
  TrainJobResult in_memory = run_train_on(images, o, second);
  EXPECT_TRUE(in_memory.state.inner.w.equal(from_files.state.inner.w));
  EXPECT_TRUE(in_memory.state.statistics.equal(from_files.state.statistics));
  EXPECT_EQ(in_memory.json.at("held_out"), from_files.json.at("held_out"));
  EXPECT_EQ(in_memory.json.at("data"), "");
  for (const char* measured : {"data", "seconds", "history"})
    in_memory.json[measured] = from_files.json.at(measured);
  EXPECT_EQ(in_memory.json, from_files.json);

  ImageData given = load_image_data(small_training(folder).data);  // with its test set
  given.train.images = given.train.images.flip({3});
  EXPECT_FALSE(run_train_on(given, o, third).state.inner.w.equal(from_files.state.inner.w));
  given.test.labels = given.test.labels.narrow(0, 0, 5);
  EXPECT_THROW(run_train_on(given, o, third), OptionError);
}

TEST(TrainJob, WhatIsNotGivenIsTheSpacesRecipe) {
  const TemporaryFolder folder;
  write_images(folder);
  TrainJobOptions o = small_training(folder);
  o.train.momentum = 0;  // has no Nesterov form, which the recipe asks for
  RunContext context({.keep = true, .out = folder / "run"}, {});
  (void)run_train(o, context);
  const StoredRun stored = read_stored_run(folder / "run");
  const auto effective = [&](const std::string& name) {
    for (const auto& [field, words] : stored.effective) {
      if (field == name) return words.front();
    }
    return std::string("not there");
  };
  EXPECT_EQ(effective("rate"), "0.1");
  EXPECT_EQ(effective("nesterov"), "false");
  EXPECT_EQ(effective("schedule"), "cosine");
  EXPECT_EQ(effective("batch"), "8");
}

TEST(ExportJob, SaysInTypesWhatTheModelTakesAndGives) {
  const TemporaryFolder folder;
  write_images(folder);
  TrainJobOptions o = small_training(folder);
  o.train.epochs = 1;
  RunContext kept({.keep = true, .out = folder / "run"}, {}), context;
  (void)run_train(o, kept);
  const ExportJobResult r = run_export({.run = folder / "run", .format = "npz"}, context);
  ASSERT_EQ(r.inputs.size(), 1U);
  EXPECT_EQ(r.inputs[0].name, "images");
  EXPECT_EQ(r.inputs[0].type, "float32");
  EXPECT_EQ(r.inputs[0].shape, (std::vector<int64_t>{1, 8, 8}));
  EXPECT_EQ(r.model_output.name, "scores");
  EXPECT_EQ(r.model_output.width, 2);
  // As the file says it.
  EXPECT_EQ(r.description.at("inputs")[0].at("holds"), r.inputs[0].holds);
  EXPECT_EQ(r.description.at("output").at("holds"), r.model_output.holds);
}

// Earlier versions stored the flag by its opposite.
TEST(TrainJob, ARunOfAnEarlierVersionWithoutFlipsIsOneWithoutFlips) {
  TrainJobOptions o;
  OptionsView view(o);
  const NamedWords stored = {{"no_flip", {"true"}}, {"epochs", {"2"}}, {"no_such_thing", {"1"}}};
  const NamedWords named_now = with_flags_as_named(view, stored);
  EXPECT_EQ(named_now, (NamedWords{{"flip", {"false"}}, {"epochs", {"2"}}, {"no_such_thing", {"1"}}}));
  give_rest(view, {named_now[0], named_now[1]});
  EXPECT_FALSE(o.train.augment.flip);
  EXPECT_TRUE(o.given(o.train.augment.flip));
}

TEST(CountJob, ImageNetHasItsOwnSizeAndClassesUnlessTheyAreGiven) {
  RunContext context;
  CountJobOptions small;
  small.genotypes = {cell};
  const CountJobResult one = run_count(small, context);
  ASSERT_EQ(one.cells.size(), 1U);
  EXPECT_EQ(one.cells[0].genotype, cell);

  CountJobOptions darts;
  darts.space = "darts";
  darts.random = 2;
  darts.network.imagenet_stem = true;
  const CountJobResult large = run_count(darts, context);
  ASSERT_EQ(large.cells.size(), 2U);
  darts.given.set(darts.network.classes, 1000);
  darts.given.set(darts.image_size, 224);
  EXPECT_EQ(run_count(darts, context).json, large.json);
  darts.given.set(darts.network.classes, 10);
  EXPECT_LT(run_count(darts, context).cells[0].parameters, large.cells[0].parameters);

  CountJobOptions nothing;
  EXPECT_THROW(run_count(nothing, context), OptionError);
}

}  // namespace
}  // namespace bilevel
