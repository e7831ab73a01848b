// A search as a C++ program calls it: images in memory, with a folder and without, interrupted and resumed;
// and how what was given falls together with the defaults of the space and the method.

#include "bilevel/jobs/search.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "bilevel/fields/option_text.h"
#include "bilevel/jobs/search_setup.h"
#include "bilevel/jobs/search_size.h"
#include "tests/temporary_folder.h"

namespace bilevel {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Noise, brighter on the left half in one class and on the right half in the other.
ImageData two_classes(int64_t count) {
  const at::Generator seed = at::detail::createCPUGenerator(3);
  ImageData images;
  images.classes = 2;
  images.train.labels = at::arange(count, at::kLong) % 2;
  at::Tensor pixels = at::randint(0, 200, {count, 1, 8, 8}, seed, at::kLong);
  for (int64_t i = 0; i < count; ++i) pixels[i].narrow(2, i % 2 == 0 ? 0 : 4, 4).add_(40);
  images.train.images = pixels.to(at::kByte);
  measure_channels(images.train.images, images.mean, images.std);
  return images;
}

SearchJobOptions small_search(const std::string& method) {
  SearchJobOptions o;
  o.network.channels = 2;
  o.network.cells = 1;
  o.augment.crop_padding = 1;
  o.search.method = method;
  o.search.epochs = 2;
  o.search.batch = 8;
  o.search.eigenvalue_products = 0;
  o.search.seed = 4;
  o.compute.threads = 1;
  return o;
}

std::vector<double> alpha_of(const SearchJobResult& result) {
  return result.json.at("alpha").get<std::vector<double>>();
}

TEST(SearchJob, InMemoryItKeepsNothingAndSaysNothingAndFindsWhatARunInAFolderFinds) {
  const ImageData images = two_classes(48);
  RunContext in_memory;
  const SearchJobResult result = run_search_on(images, small_search("darts"), in_memory);
  EXPECT_EQ(result.end.status, RunStatus::finished);
  EXPECT_EQ(result.folder, "");
  EXPECT_TRUE(result.files.empty());
  EXPECT_FALSE(result.json.contains("folder"));
  ASSERT_EQ(result.summary.history.size(), 2U);
  EXPECT_EQ(result.search.batch, 8);
  EXPECT_EQ(result.search.inner.rate, 0.025) << "the published rate, which was not given";
  EXPECT_EQ(result.search.guard.name, nas::default_guard);

  const TemporaryFolder folder;
  RunContext kept({.keep = true, .out = folder / "run"}, {});
  const SearchJobResult same = run_search_on(images, small_search("darts"), kept);
  EXPECT_EQ(alpha_of(same), alpha_of(result));
  EXPECT_EQ(same.folder, folder / "run");
  for (const std::string& file : same.files) EXPECT_TRUE(std::filesystem::exists(same.folder + "/" + file));
  const StoredRun stored = read_stored_run(same.folder);
  EXPECT_EQ(stored.job, "search");
  // What was set is stored as given, what was found as effective.
  std::set<std::string> given, effective;
  for (const auto& [name, words] : stored.given) given.insert(name);
  for (const auto& [name, words] : stored.effective) effective.insert(name);
  EXPECT_THAT(given, ElementsAre("batch", "cells", "channels", "crop_padding", "eigenvalue_products",
                                 "epochs", "method", "seed", "threads"));
  EXPECT_TRUE(effective.count("inner_rate"));
  EXPECT_TRUE(effective.count("guard"));
}

TEST(SearchJob, AProfileHasEveryOracleCallAndNoMoreThanTheTimeThereWas) {
  RunContext context;
  SearchJobOptions options = small_search("idarts");
  EXPECT_FALSE(run_search_on(two_classes(48), options, context).profile.has_value());
  options.profile = true;
  const SearchJobResult result = run_search_on(two_classes(48), options, context);
  ASSERT_TRUE(result.profile.has_value());
  const auto calls = [&](const std::string& name) {
    int64_t count = 0;
    for (const auto& row : result.profile->oracle_calls) count += row.name == name ? row.calls : 0;
    return count;
  };
  const OracleCounts& counts = result.summary.counts;
  EXPECT_EQ(calls("gradient of g") + calls("gradient of g in x"), counts.inner_gradient);
  EXPECT_EQ(calls("gradients of f") + calls("gradient of f in x"), counts.outer_gradient);
  EXPECT_EQ(calls("Hessian product"), counts.hessian);
  double own = 0;
  for (const auto& row : result.profile->operations) own += row.seconds;
  EXPECT_GT(own, 0);
  EXPECT_LE(own, result.profile->seconds);
  EXPECT_EQ(result.json.at("profile").at("oracle_calls").size(), result.profile->oracle_calls.size());
}

TEST(SearchJob, InterruptedAndResumedItEndsInTheSameBits) {
  const ImageData images = two_classes(48);
  for (const char* method : {"idarts", "random-sharing"}) {
    SearchJobOptions options = small_search(method);
    options.search.inner.steps = 1;
    if (options.search.method == "random-sharing") options.search.samples = 2;
    RunContext whole;
    const SearchJobResult expected = run_search_on(images, options, whole);
    const TemporaryFolder folder;
    int asked = 0;
    {
      RunContext stopped({.keep = true, .out = folder / "run"},
                         {.interrupted = [&] { return ++asked == 4; }});  // in the second epoch
      EXPECT_EQ(run_search_on(images, options, stopped).end.status, RunStatus::interrupted);
    }
    {
      RunContext other({.keep = true, .resume = folder / "run"}, {});
      EXPECT_THROW(run_search_on(two_classes(56), options, other), RunError);
    }
    RunContext resumed({.keep = true, .resume = folder / "run"}, {});
    const SearchJobResult result = run_search_on(images, options, resumed);
    EXPECT_EQ(result.end.status, RunStatus::finished);
    EXPECT_EQ(alpha_of(result), alpha_of(expected)) << method;
    EXPECT_EQ(result.json.at("genotype"), expected.json.at("genotype")) << method;
  }
}

TEST(SearchJob, ASmallSizeFillsInWhatWasNotGiven) {
  const nas::SearchSpace space = nas::make_space("nasbench201");
  SearchJobOptions o;
  o.given.set(o.size, "small");
  o.given.set(o.augment.crop_padding, 3);
  complete_search(o, space, false);
  take_size_of_images(o);
  EXPECT_EQ(o.network.channels, 4);
  EXPECT_EQ(o.data.image_size, 16);
  EXPECT_EQ(o.augment.crop_padding, 3) << "was given";
  EXPECT_EQ(o.search.epochs, 10);
  EXPECT_EQ(o.search.warmup_epochs, 1) << "a tenth of these epochs";
  EXPECT_EQ(o.search.eigenvalue_products, 0);
  EXPECT_EQ(o.search.inner.rate, 0.025) << "the space's";

  SearchJobOptions watched;
  watched.given.set(watched.size, "small");
  watched.given.set(watched.search.stop, "eigenvalue");
  watched.given.set(watched.search.epochs, 7);
  complete_search(watched, space, false);
  EXPECT_EQ(watched.search.epochs, 7);
  EXPECT_GT(watched.search.eigenvalue_products, 0) << "the rule reads it";

  SearchJobOptions published;
  complete_search(published, space, false);
  take_size_of_images(published);
  EXPECT_EQ(published.network.channels, nas::SupernetOptions().channels);
  EXPECT_EQ(published.search.epochs, 50);
  EXPECT_EQ(published.data.image_size, 0);
}

TEST(SearchJob, WhoeverWouldWaitForDaysIsToldOfTheSmallSize) {
  ImageData images;
  images.train.images = at::empty({1, 3, 32, 32});
  SearchJobOptions o;
  EXPECT_THAT(size_hint(o, images, 25000), ::testing::HasSubstr("takes minutes"));
  EXPECT_EQ(size_hint(o, images, 500), "");
  o.compute.device = "cuda";
  EXPECT_EQ(size_hint(o, images, 25000), "");
  o.compute.device = "cpu";
  o.given.set(o.network.channels, 8);
  EXPECT_EQ(size_hint(o, images, 25000), "");
}

TEST(SearchJob, WhatWasGivenComesBeforeTheDefaultsOfSpaceAndMethod) {
  const nas::SearchSpace space = nas::make_space("nasbench201");
  SearchJobOptions o;
  o.search.method = "truncated";
  o.given.set(o.search.inner.steps, 3);
  o.given.set(o.search.inner.rate, 0.0005);
  o.given.set(o.search.guard.name, "smoothing");
  complete_search(o, space, false);
  EXPECT_EQ(o.search.epochs, 30) << "of truncated in this space";
  EXPECT_EQ(o.search.hypergradient.truncate, 3) << "all of the steps";
  EXPECT_EQ(o.search.final_rate, 0.0005) << "not above the rate that it begins at";
  EXPECT_EQ(o.search.guard.strength, nas::find_guard("smoothing").strength);
  EXPECT_EQ(o.cross, "difference");

  SearchJobOptions exact;
  exact.given.set(exact.cross, "exact");
  exact.given.set(exact.linear_rate, "0.25");
  exact.given.set(exact.search.method, "idarts");
  complete_search(exact, space, false);
  EXPECT_FALSE(exact.search.hypergradient.curvature.difference_cross);
  EXPECT_EQ(exact.search.hypergradient.linear_rate, 0.25);
  EXPECT_FALSE(exact.search.linear_rate_auto);
}

// The weights go ahead of alpha under the default guard, unless they are told not to.
TEST(SearchJob, TheWarmUpGoesWithTheGuardAndTheEpochs) {
  const auto warmup = [](const auto& give) {
    SearchJobOptions o;
    give(o);
    complete_search(o, nas::make_space("nasbench201"), false);
    return o.search.warmup_epochs;
  };
  EXPECT_EQ(warmup([](SearchJobOptions&) {}), 2);
  EXPECT_EQ(warmup([](SearchJobOptions& o) { o.given.set(o.search.epochs, 12); }), 1);
  EXPECT_EQ(warmup([](SearchJobOptions& o) { o.given.set(o.search.epochs, 9); }), 0);
  EXPECT_EQ(warmup([](SearchJobOptions& o) { o.given.set(o.search.warmup_epochs, 7); }), 7);
  EXPECT_EQ(warmup([](SearchJobOptions& o) { o.given.set(o.search.guard.name, "none"); }), 0);
  EXPECT_EQ(warmup([](SearchJobOptions& o) { o.given.set(o.search.guard.name, "smoothing"); }), 0);
  EXPECT_EQ(warmup([](SearchJobOptions& o) { o.given.set(o.search.guard.strength, 0.0); }), 0);
}

// The published defaults are for 25,000 images: fewer make fewer steps.
TEST(SearchJob, DefaultsFollowTheNumberOfOnesOwnImages) {
  const nas::SearchSpace space = nas::make_space("nasbench201");
  const auto scaled = [&](int64_t images, const auto& give) {
    SearchJobOptions o;
    give(o);
    complete_search(o, space, false);
    return std::pair{scale_to_images(o, images), o.search};
  };
  const auto nothing = [](SearchJobOptions&) {};
  const auto [few, few_options] = scaled(719, nothing);
  EXPECT_EQ(few_options.batch, 8);            // 50 steps an epoch would be 14, less than two eights
  EXPECT_EQ(few_options.warmup_epochs, 9);    // 780 weight steps, 89 an epoch
  EXPECT_EQ(few_options.outer.rate, 0.0016);  // 50 * 390 * 3e-4 / (41 * 89)
  EXPECT_EQ(
      plain_text(few),
      "search: for 719 training images, in place of the published defaults: batch = 8, warmup_epochs = 9, "
      "alpha_rate = 0.0016");
  EXPECT_EQ(scaled(25000, nothing).first, "");
  // By a rate that falls like 1 / sqrt, fewer steps go less far behind: sqrt(50 * 390 / (41 * 89)) times
  // 3e-4.
  EXPECT_EQ(scaled(719,
                   [](SearchJobOptions& o) {
                     Schedule falling;
                     falling.kind = ScheduleKind::inverse_sqrt;
                     o.given.set(o.search.outer.schedule, falling);
                   })
                .second.outer.rate,
            0.0007);
  EXPECT_EQ(scaled(40, nothing).second.outer.rate, 0.02);
  const auto [kept, kept_options] = scaled(719, [](SearchJobOptions& o) {
    o.given.set(o.search.batch, 32);
    o.given.set(o.search.outer.rate, 1e-3);
    o.given.set(o.search.warmup_epochs, 1);
  });
  EXPECT_EQ(kept, "");
  EXPECT_EQ(kept_options.batch, 32);
  EXPECT_EQ(kept_options.outer.rate, 1e-3);
  EXPECT_EQ(kept_options.warmup_epochs, 1);
}

// A few large steps on a few images go anywhere; many small ones add up where the gradients agree.
TEST(SearchJob, SaysWhereAlphaHasMovedByNoMoreThanChance) {
  const ImageData images = two_classes(64);
  const auto searched = [&](double rate, int64_t epochs, std::vector<std::string>& warnings) {
    SearchJobOptions o = small_search("darts-first-order");
    o.search.epochs = epochs;
    o.search.outer.rate = rate;
    RunContext context({}, {.warning = [&](const std::string& text) { warnings.push_back(text); }});
    return run_search_on(images, o, context);
  };
  std::vector<std::string> warnings;
  const SearchJobResult moved = searched(1e-3, 40, warnings);
  EXPECT_GT(moved.alpha_moved, 2 * moved.alpha_moved_by_chance);
  EXPECT_TRUE(warnings.empty());
  const SearchJobResult by_chance = searched(0.02, 12, warnings);
  EXPECT_LT(by_chance.alpha_moved, 2 * by_chance.alpha_moved_by_chance);
  // Ten epochs of 4 steps after two of warm-up; of five numbers that sum to the same, four are free.
  EXPECT_NEAR(by_chance.alpha_moved_by_chance, 0.02 * std::sqrt(10 * 4 * 0.8), 1e-12);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("which operations lead is chance here"));
  SearchJobOptions falling = small_search("darts-first-order");
  falling.search.epochs = 12;
  falling.search.outer.rate = 0.02;
  falling.search.outer.schedule.kind = ScheduleKind::linear;  // squares of 40/40, 39/40, ...
  RunContext quiet;
  EXPECT_NEAR(run_search_on(images, falling, quiet).alpha_moved_by_chance,
              0.02 * std::sqrt(40 * 41 * 81 / 6.0 / 1600 * 0.8), 1e-12);
  EXPECT_EQ(by_chance.json.at("alpha_moved"), by_chance.alpha_moved);
}

TEST(SearchJob, BaselinesAreTrainedBesideTheCell) {
  ImageData images = two_classes(64);
  images.test.images = two_classes(32).train.images;
  images.test.labels = two_classes(32).train.labels;
  SearchJobOptions o = small_search("darts-first-order");
  o.baselines = 2;
  o.search.epochs = 4;
  RunContext context;
  const SearchJobResult result = run_search_on(images, o, context);
  ASSERT_EQ(result.baselines.size(), 4U);
  EXPECT_EQ(result.baselines_on, "test");
  const Json& cells = result.json.at("baselines");
  EXPECT_EQ(cells[0].at("cell"), "found");
  EXPECT_EQ(cells[0].at("genotype"), result.json.at("genotype"));
  EXPECT_EQ(cells[1].at("cell"), "all-3x3");
  EXPECT_EQ(
      cells[1].at("genotype"),
      "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|");
  EXPECT_EQ(cells[2].at("cell"), "random-1");
  EXPECT_NE(cells[2].at("genotype"), cells[3].at("genotype"));
  // The cells' own trainings leave the search as it is.
  o.baselines = 0;
  RunContext without;
  EXPECT_EQ(alpha_of(run_search_on(images, o, without)), alpha_of(result));

  const TemporaryFolder folder;
  o.baselines = 2;
  int64_t asked = 0;
  {
    RunContext stopped({.keep = true, .out = folder / "run"}, {.interrupted = [&] { return ++asked == 40; }});
    const SearchJobResult half = run_search_on(images, o, stopped);
    EXPECT_EQ(half.end.status, RunStatus::interrupted);
    EXPECT_EQ(half.baselines.size(), 0U);
  }
  RunContext resumed({.keep = true, .resume = folder / "run"}, {});
  const SearchJobResult rest = run_search_on(images, o, resumed);
  EXPECT_EQ(rest.json.at("baselines"), cells);
}

TEST(SearchJob, WhatAMethodDoesNotReadIsRefusedByName) {
  const auto refusal = [](const std::string& method, const std::string& field, const std::string& word) {
    SearchJobOptions o;
    o.search.method = method;
    OptionsView view(o);
    view.give(view.at(field), {word});
    try {
      complete_search(o, nas::make_space("nasbench201"), false);
    } catch (const OptionError& error) {
      return flag_text(error.marked());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("darts", "terms", "3"),
            "--terms 3 has no effect with --method darts; only idarts and cg use it. Leave it out");
  EXPECT_EQ(refusal("idarts", "terms", "3"), "");
  EXPECT_EQ(
      refusal("gdas", "cross", "exact"),
      "--cross exact has no effect with --method gdas; only idarts, darts, truncated and cg use it. Leave it "
      "out");
  EXPECT_EQ(refusal("darts", "momentum", "0.5"), "");
  EXPECT_EQ(refusal("darts", "stop_ratio", "0.5"),
            "--stop-ratio 0.5 has no effect with --stop none; only eigenvalue uses it. Leave it out");
}

TEST(SearchJob, EveryOptionThatAMethodReadsIsAField) {
  std::set<std::string> names;
  for (const Field& field : SearchJobOptions::fields().rows()) names.insert(field.name);
  for (const nas::SearchMethod& method : nas::search_methods()) {
    for (const std::string& read : method.reads)
      EXPECT_TRUE(names.count(read)) << method.name << ": " << read;
  }
}

// Runs of earlier versions had idarts as their method and knew no guard.
TEST(SearchJob, ARunOfAnEarlierVersionKeepsItsMethodAndHasNoGuard) {
  const StoredRun earlier{.job = "search", .given = {}, .effective = {{"method", {"idarts"}}}, .notes = {}};
  SearchJobOptions o;
  keep_earlier_defaults(o, earlier);
  complete_search(o, nas::make_space("nasbench201"), false);
  EXPECT_EQ(o.search.method, "idarts");
  EXPECT_FALSE(o.search.guard.on());
  EXPECT_EQ(o.search.guard.strength, 0);

  const StoredRun now{.job = "search",
                      .given = {},
                      .effective = {{"method", {"darts-first-order"}}, {"guard", {"beta-decay"}}},
                      .notes = {}};
  SearchJobOptions today;
  keep_earlier_defaults(today, now);
  complete_search(today, nas::make_space("nasbench201"), false);
  EXPECT_EQ(today.search.guard.name, "beta-decay");
}

// The default was 50 from the first epoch on.
TEST(SearchJob, ARunOfAnEarlierVersionKeepsItsStrengthAndHasNoWarmUp) {
  const StoredRun earlier{.job = "search",
                          .given = {},
                          .effective = {{"method", {"darts-first-order"}},
                                        {"guard", {"beta-decay"}},
                                        {"guard_strength", {"50"}},
                                        {"warmup_epochs", {"0"}}},
                          .notes = {}};
  SearchJobOptions o;
  keep_earlier_defaults(o, earlier);
  complete_search(o, nas::make_space("nasbench201"), false);
  EXPECT_EQ(o.search.guard.strength, 50);
  EXPECT_EQ(o.search.warmup_epochs, 0);
}

}  // namespace
}  // namespace bilevel
