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
#include "tests/cli/image_files.h"
#include "tests/temporary_folder.h"

namespace bilevel {
namespace {

using test::TemporaryFolder;

constexpr const char* cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|";

void write_images(const TemporaryFolder& folder) {
  const at::Tensor labels = at::arange(40, at::kLong) % 2;
  const at::Tensor pixels = at::arange(40 * 64, at::kLong).mul(37).remainder(200).reshape({40, 8, 8}) +
                            labels.mul(50).reshape({40, 1, 1});
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
