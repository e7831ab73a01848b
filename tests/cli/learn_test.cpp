// `bilevel learn` and `bilevel adapt` as a user runs them.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "bilevel/data/npy.h"
#include "bilevel/meta/model_file.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string small =
    "learn --data blobs --learner aid --queries 5 --filters 16 --meta-batch 4 --valid-tasks 10 --test-tasks "
    "20 "
    "--threads 1 --quiet";

TEST(Learn, RisesAboveChanceAndSaysSo) {
  const TemporaryFolder folder;
  const json report = run_json(small + " --iterations 60 --records 3 --out " + (folder / "run"));
  EXPECT_EQ(report.at("learner"), "aid");
  EXPECT_EQ(report.at("stopped"), "iterations_done");
  EXPECT_EQ(report.at("history").size(), 4U);
  EXPECT_GT(report.at("test_accuracy"), 40);  // chance: 20
  EXPECT_GT(report.at("test_interval"), 0);
  EXPECT_EQ(report.at("test_tasks"), 20);
  EXPECT_EQ(report.at("counts").at("outer_gradient"), 60);
  EXPECT_GT(report.at("history")[3].at("valid_accuracy"), report.at("history")[0].at("valid_accuracy"));
  EXPECT_EQ(json::parse(read_text(folder / "run/summary.json")), report);
  EXPECT_EQ(json::parse(read_text(folder / "run/run.json")).at("status"), "finished");
  EXPECT_FALSE(read_text(folder / "run/model").empty());
}

// That a killed one goes on to the same bits is the kill test's.
TEST(Learn, AResumedRunIsTheOneThatBegan) {
  const TemporaryFolder folder;
  const json whole = run_json(small + " --iterations 5 --out " + (folder / "run"));
  EXPECT_EQ(run_json("learn --quiet --json --resume " + (folder / "run")).at("test_loss"),
            whole.at("test_loss"));
  const Output other = run_program("learn --quiet --iterations 8 --resume " + (folder / "run"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("--iterations"), HasSubstr("--config")));
}

TEST(Learn, NamesWhatIsWrong) {
  const auto said = [](const std::string& arguments, int exit_code) {
    const TemporaryFolder folder;
    const Output output = run_program(small + " --iterations 3 --out " + (folder / "run") + arguments);
    EXPECT_EQ(output.exit_code, exit_code) << output.err;
    return output.err;
  };
  EXPECT_THAT(said(" --ridge 0", 2), HasSubstr("--ridge 0: aid solves"));
  EXPECT_THAT(said(" --truncate 3", 2), HasSubstr("--truncate 3 has no effect with --learner aid"));
  EXPECT_THAT(said(" --network conv4", 2), HasSubstr("conv4"));
  EXPECT_THAT(said(" --ways 1000", 2), HasSubstr("1000"));
  EXPECT_THAT(said(" --inner-rate 1e30", 3), HasSubstr("inner rate"));
}

// Stripes: a class is a direction and a width, an image one of their places.
std::string stripes(int kind, int place) {
  std::string pixels;
  for (int y = 0; y < 16; ++y) {
    for (int x = 0; x < 16; ++x) {
      const double angle = 0.5 * kind, wave = 0.6 + 0.15 * (kind % 3);
      pixels += static_cast<char>(
          static_cast<int>(127 + 100 * std::sin(wave * (x * std::cos(angle) + y * std::sin(angle)) + place)));
    }
  }
  return grey_png(16, 16, pixels);
}

// One step does not recognise the few images: adapt goes on until it does.
TEST(Adapt, TakesMoreInnerStepsWhereTheFewImagesAreNotRecognised) {
  const TemporaryFolder folder;
  for (int kind = 0; kind < 12; ++kind) {
    for (int place = 0; place < 6; ++place) {
      put(folder / ("classes/" + std::to_string(kind) + "/" + std::to_string(place) + ".png"),
          stripes(kind, place));
    }
  }
  const std::string learn =
      "learn --quiet --data " + (folder / "classes") +
      " --learner itd --ways 2 --shots 2 --queries 3 --filters 16 --inner-steps 1 "
      "--inner-rate 0.3 --meta-batch 2 --iterations 0 --valid-tasks 2 --test-tasks 2 --out " +
      (folder / "run");
  run_json(learn);
  for (const int kind : {1, 4, 7}) {
    for (int place = 0; place < 2; ++place) {
      put(folder / ("mine/" + std::to_string(kind) + "/" + std::to_string(place) + ".png"),
          stripes(kind, place));
    }
  }
  const json report = run_json("adapt --run " + (folder / "run") + " --support " + (folder / "mine") +
                               " --images " + (folder / "mine/1"));
  EXPECT_EQ(report.at("inner_steps"), 2);
  EXPECT_EQ(report.at("support_accuracy"), 100);
  EXPECT_EQ(report.at("by"), "learned");

  // A run that returned the regression on raw inputs adapts by that.
  meta::LearnedModel model = meta::load_model(folder / "run/model");
  model.raw_penalty = 0.01;
  meta::save_model(folder / "run/model", model);
  const json raw = run_json("adapt --run " + (folder / "run") + " --support " + (folder / "mine") +
                            " --images " + (folder / "mine/1"));
  EXPECT_EQ(raw.at("by"), "raw_inputs");
  EXPECT_TRUE(raw.at("inner_steps").is_null());
  EXPECT_EQ(raw.at("support_accuracy"), 100);
  EXPECT_EQ(raw.at("predictions")[0].at("class"), "1");
}

// Rows of a table: names of new classes, columns in another order, units as they are.
TEST(Adapt, RecognisesRowsOfATableFromAFewOfEachClass) {
  const TemporaryFolder folder;
  const auto row = [](int kind, int place) {
    const double angle = 0.7 * kind, noise = 0.1 * std::sin(17.0 * place + kind);
    return std::vector<double>{1000 * (3 * std::cos(angle) + noise), 3 * std::sin(angle) - noise,
                               0.01 * std::cos(2 * angle + noise)};
  };
  std::string classes = "height,width,depth,species\n";
  for (int kind = 0; kind < 16; ++kind) {
    for (int place = 0; place < 8; ++place) {
      const std::vector<double> r = row(kind, place);
      classes += fmt::format("{},{},{},kind {}\n", r[0], r[1], r[2], kind);
    }
  }
  put(folder / "classes.csv", classes);
  run_json("learn --quiet --data " + (folder / "classes.csv") +
           " --label-column species --ways 2 --shots 2 --queries 3 --meta-batch 2 --iterations 20 "
           "--valid-tasks 4 --test-tasks 4 --out " +
           (folder / "run"));
  std::string few = "species,width,height,depth\n", fresh = "depth,height,width\n";
  const std::vector<std::string> names{"oak", "elm", "ash"};
  for (size_t k = 0; k < names.size(); ++k) {
    const int kind = 20 + 3 * static_cast<int>(k);
    for (int place = 0; place < 3; ++place) {
      const std::vector<double> r = row(kind, place);
      few += fmt::format("{},{},{},{}\n", names[k], r[1], r[0], r[2]);
    }
    const std::vector<double> r = row(kind, 7);
    fresh += fmt::format("{},{},{}\n", r[2], r[0], r[1]);
  }
  put(folder / "few.csv", few);
  put(folder / "new.csv", fresh);
  const std::string adapt = "adapt --run " + (folder / "run") + " --support " + (folder / "few.csv");
  const json report = run_json(adapt + " --data " + (folder / "new.csv") + " --out " + (folder / "p.csv"));
  ASSERT_EQ(report.at("predictions").size(), 3U);
  for (size_t k = 0; k < names.size(); ++k) {
    EXPECT_EQ(report.at("predictions")[k].at("class"), names[k]);
    EXPECT_EQ(report.at("predictions")[k].at("row"), k);
  }
  EXPECT_EQ(report.at("classes")[0].at("rows"), 3);
  EXPECT_THAT(read_text(folder / "p.csv"), HasSubstr("row,class,confidence,ash,elm,oak\n0,oak,"));
  // It recognises the rows that it learned from.
  EXPECT_EQ(report.at("support_accuracy"), 100);
  const json known = run_json(adapt + " --data " + (folder / "few.csv"));
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(known.at("predictions")[i].at("class"), names[i / 3]);

  EXPECT_THAT(run_program(adapt).err, HasSubstr("--data is missing"));
  EXPECT_THAT(run_program(adapt + " --images " + (folder / "run")).err, HasSubstr("give --data"));
  put(folder / "narrow.csv", "height,width\n1,2\n");
  EXPECT_THAT(run_program(adapt + " --data " + (folder / "narrow.csv")).err,
              AllOf(HasSubstr("narrow.csv"), HasSubstr("depth")));
}

// The same rows as arrays with labels beside them.
TEST(Adapt, TakesArraysWithLabelsBesideThem) {
  const TemporaryFolder folder;
  const Tensor kinds = at::repeat_interleave(at::arange(16), at::full({16}, 8, at::kLong));
  const auto rows = [](const Tensor& kind) {
    const Tensor angle = 0.7 * kind.to(at::kDouble), place = at::arange(kind.numel(), at::kDouble);
    return at::stack({3 * angle.cos() + 0.1 * place.sin(), 3 * angle.sin(), (2 * angle).cos()}, 1);
  };
  write_npy(folder / "x.npy", rows(kinds));
  write_npy(folder / "y.npy", kinds);
  run_json(
      "learn --quiet --data " + (folder / "x.npy") + " --labels " + (folder / "y.npy") +
      " --ways 2 --shots 2 --queries 3 --meta-batch 2 --iterations 20 --valid-tasks 4 --test-tasks 4 --out " +
      (folder / "run"));
  const Tensor few = at::tensor({20, 20, 23, 23, 26, 26}, at::kLong);
  write_npy(folder / "few.npy", rows(few));
  write_npy(folder / "few-y.npy", few);
  const std::string adapt = "adapt --run " + (folder / "run") + " --support " + (folder / "few.npy") +
                            " --data " + (folder / "few.npy");
  const json report = run_json(adapt + " --support-labels " + (folder / "few-y.npy"));
  EXPECT_EQ(report.at("support_accuracy"), 100);
  EXPECT_EQ(report.at("predictions")[4].at("class"), "26");
}

TEST(Adapt, RecognisesImagesFromAFewOfEachClass) {
  const TemporaryFolder folder;
  for (int kind = 0; kind < 12; ++kind) {
    for (int place = 0; place < 6; ++place) {
      put(folder / ("classes/" + std::to_string(kind) + "/" + std::to_string(place) + ".png"),
          stripes(kind, place));
    }
  }
  run_json("learn --quiet --data " + (folder / "classes") +
           " --learner itd --ways 2 --shots 2 --queries 3 --filters 16 --inner-steps 50 --inner-rate 0.3 "
           "--meta-batch 2 --iterations 10 "
           "--valid-tasks 2 --test-tasks 2 --out " +
           (folder / "run"));
  for (const int kind : {1, 4, 7}) {
    const std::string name = std::string("mine/stripes ") + static_cast<char>('a' + kind);
    for (int place = 0; place < 2; ++place) {
      put(folder / (name + "/" + std::to_string(place) + ".png"), stripes(kind, place));
    }
    put(folder / ("new/" + std::to_string(kind) + ".png"), stripes(kind, 1));
  }
  const std::string adapt = "adapt --run " + (folder / "run") + " --support '" + (folder / "mine") +
                            "' --images " + (folder / "new");
  const json report = run_json(adapt + " --out " + (folder / "p.csv"));
  ASSERT_EQ(report.at("predictions").size(), 3U);
  EXPECT_EQ(report.at("classes").size(), 3U);  // itd takes any number
  EXPECT_EQ(report.at("predictions")[0].at("class"), "stripes b");
  EXPECT_EQ(report.at("predictions")[1].at("class"), "stripes e");
  EXPECT_EQ(report.at("predictions")[2].at("class"), "stripes h");
  EXPECT_GT(report.at("predictions")[0].at("confidence"), 1.0 / 3);
  EXPECT_THAT(read_text(folder / "p.csv"), HasSubstr("1.png,stripes b,"));
  const Output text = run_program(adapt);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("stripes h"));
  EXPECT_THAT(run_program("adapt --run " + (folder / "mine") + " --support " + (folder / "mine") +
                          " --images " + (folder / "new"))
                  .err,
              AllOf(HasSubstr("--run " + (folder / "mine")), HasSubstr("bilevel learn")));
  EXPECT_THAT(run_program("adapt --run " + (folder / "run") + " --support " + (folder / "new") +
                          " --images " + (folder / "new"))
                  .err,
              HasSubstr("new"));
}

}  // namespace
}  // namespace bilevel::test
