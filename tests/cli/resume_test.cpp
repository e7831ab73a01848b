// What --resume rests on: config.json shows the values in use, a run goes on with them and with nothing else,
// on the data that it began with, and a finished one is left as it is.

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "bilevel/nas/search_options.h"
#include "bilevel/nas/space.h"
#include "bilevel/nas/synthetic_supernet.h"
#include "bilevel/problems/cnn_cleaning.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string learn =
    "learn --data blobs --learner aid --filters 16 --iterations 4 --records 2 --valid-tasks 5 --test-tasks "
    "10 "
    "--threads 1 --save-every 0";

class ResumeTest : public ::testing::Test {
 protected:
  static json run_json(const std::string& arguments) {
    const Output output = run_program(arguments + " --json --quiet");
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.exit_code == 0 ? output.json() : json();
  }
  static std::string refusal(const std::string& arguments, int exit_code) {
    const Output output = run_program(arguments + " --quiet");
    EXPECT_EQ(output.exit_code, exit_code) << output.err;
    EXPECT_EQ(output.out, "");
    return output.err;
  }
  static json effective(const std::string& folder) { return config_of(folder).at("effective"); }
  static double number_in(const json& values, const std::string& option) {
    return values.at(field_name(option)).get<double>();
  }
  // As a process that was killed one checkpoint before its end leaves it.
  static void kill_late(const std::string& folder) {
    json facts = json::parse(read_text(folder + "/run.json"));
    facts["status"] = "running";
    put(folder + "/run.json", facts.dump());
    if (std::filesystem::exists(folder + "/checkpoint.previous")) {
      std::filesystem::rename(folder + "/checkpoint.previous", folder + "/checkpoint");
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(ResumeTest, TheConfigurationShowsWhatALearnerUses) {
  const json report = run_json(learn + " --out " + folder_ / "run");
  const json shown = effective(folder_ / "run");
  const std::pair<const char*, const char*> numbers[] = {{"--ways", "ways"},
                                                         {"--shots", "shots"},
                                                         {"--queries", "queries"},
                                                         {"--filters", "filters"},
                                                         {"--terms", "terms"},
                                                         {"--truncate", "truncate"},
                                                         {"--inner-rate", "inner_rate"},
                                                         {"--outer-rate", "outer_rate"},
                                                         {"--inner-steps", "inner_steps"},
                                                         {"--meta-batch", "meta_batch"},
                                                         {"--iterations", "iterations"},
                                                         {"--test-tasks", "test_tasks"}};
  for (const auto& [option, name] : numbers) {
    EXPECT_EQ(number_in(shown, option), report.at(name).get<double>()) << option;
  }
  EXPECT_EQ(shown.at("network"), report.at("network"));
}

TEST_F(ResumeTest, TheConfigurationShowsWhatASearchAndACleaningUse) {
  const Tensor pixels = at::arange(80 * 64).reshape({80, 64}).remainder(211);
  put(folder_ / "images", idx({80, 8, 8}, pixels));
  put(folder_ / "labels", idx({80}, at::arange(80).remainder(4)));
  run_json(
      "search --method darts --epochs 1 --channels 2 --cells 1 --batch 4 --threads 1 --crop-padding 1 "
      "--eigenvalue-products 0 --data " +
      folder_ / "images" + " --labels " + folder_ / "labels" + " --out " + folder_ / "search");
  const nas::SearchOptions used = nas::default_search_options(nas::make_space("nasbench201"), "darts");
  const json search = effective(folder_ / "search");
  EXPECT_EQ(search.at("inner_optimizer"), used.inner.optimizer);
  EXPECT_EQ(number_in(search, "--inner-steps"), static_cast<double>(used.inner.steps));
  EXPECT_EQ(number_in(search, "--inner-rate"), used.inner.rate);
  EXPECT_EQ(number_in(search, "--alpha-rate"), 0.015);  // 390 * 3e-4 / 8: an epoch is 8 batches of 4 images
  EXPECT_EQ(number_in(search, "--alpha-decay"), used.outer.preparation.weight_decay);
  EXPECT_EQ(search.at("cross"), "difference");

  const std::string own = " --train " + folder_ / "images" + " --train-labels " + folder_ / "labels" +
                          " --valid " + folder_ / "images" + " --valid-labels " + folder_ / "labels";
  run_json("clean --model cnn --iterations 1 --inner-steps 1 --final-steps 1 --threads 1" + own + " --out " +
           folder_ / "cnn");
  EXPECT_EQ(number_in(effective(folder_ / "cnn"), "--regularization"), CnnOptions{}.regularization);
  run_json("clean --iterations 1 --inner-steps 1 --final-steps 1 --threads 1" + own + " --out " +
           folder_ / "linear");
  EXPECT_EQ(number_in(effective(folder_ / "linear"), "--regularization"), 0.001);
}

TEST_F(ResumeTest, TheConfigurationShowsASupernetsWeightDecay) {
  run_json(
      "solve --problem supernet --algorithm double-loop --method truncated --iterations 1 --inner-steps 1 "
      "--image-size 8 --images 8 --channels 2 "
      "--threads 1 --out " +
      folder_ / "run");
  EXPECT_EQ(number_in(effective(folder_ / "run"), "--weight-decay"), nas::SyntheticSupernet{}.weight_decay);
}

TEST_F(ResumeTest, OnlyTheValuesInUseMayBeSaidAgain) {
  const std::string run = folder_ / "run", resume = "learn --resume " + run;
  const json whole = run_json(learn + " --out " + run);
  kill_late(run);
  EXPECT_THAT(refusal(resume + " --outer-rate 0.001 --inner-rate 0.1", 2),
              AllOf(HasSubstr("--inner-rate"), HasSubstr("--outer-rate"), HasSubstr("keeps its options")));
  const json again = run_json(resume + " --outer-rate 0.003 --inner-rate 0.05");
  EXPECT_EQ(again.at("test_loss"), whole.at("test_loss"));
}

// The inner rate comes from the curvature, and config.json shows all its digits.
TEST_F(ResumeTest, AMeasuredValueThatIsSaidAgainDoesNotChangeTheRun) {
  const std::string run = folder_ / "run";
  const json whole = run_json(
      "solve --problem hyper-cleaning --algorithm aid-cg --iterations 12 --threads 1 --save-every 0 "
      "--out " +
      run);
  const std::string x = read_text(run + "/x.npy");
  const json rate = effective(run).at("inner_rate");
  ASSERT_EQ(rate, whole.at("inner_rate"));
  kill_late(run);
  EXPECT_THAT(refusal("solve --resume " + run + " --inner-rate 0.1", 2), HasSubstr("--inner-rate"));
  const json again = run_json("solve --resume " + run + " --inner-rate " + rate.dump());
  EXPECT_EQ(again.at("inner_rate"), whole.at("inner_rate"));
  EXPECT_EQ(read_text(run + "/x.npy"), x);
}

TEST_F(ResumeTest, SolveTellsOtherImagesOfANamedSet) {
  const std::string mnist = folder_ / "data/mnist/", run = folder_ / "run";
  const auto write = [&](const std::string& part, int64_t count, int64_t shift) {
    const Tensor pixels = at::arange(count * 784).add(shift).remainder(251);
    put(mnist + part + "-images-idx3-ubyte", idx({count, 28, 28}, pixels));
    put(mnist + part + "-labels-idx1-ubyte", idx({count}, at::arange(count).remainder(10)));
  };
  write("train", 60000, 0);
  write("t10k", 10000, 0);
  const std::string data = " --data-dir " + folder_ / "data";
  const json whole = run_json(
      "solve --problem hyper-cleaning --data mnist --train-size 20 --valid-size 20 --iterations 3 "
      "--inner-steps 5 --threads 1 --save-every 0 --out " +
      run + data);
  kill_late(run);
  write("train", 60000, 1);
  EXPECT_THAT(refusal("solve --resume " + run, 1),
              AllOf(HasSubstr("--resume " + run), HasSubstr("different data")));
  write("train", 60000, 0);
  std::filesystem::rename(folder_ / "data", folder_ / "moved");
  EXPECT_EQ(run_json("solve --resume " + run + " --data-dir " + folder_ / "moved").at("outer_loss"),
            whole.at("outer_loss"));
}

TEST_F(ResumeTest, InteractTellsOtherExamplesOfTheSameShape) {
  const auto table = [](double scale) {
    std::string text;
    for (int i = 0; i < 24; ++i) {
      text += std::to_string(i % 2) + "," + std::to_string(scale * std::sin(i)) + "," +
              std::to_string(std::cos(3 * i)) + "," + std::to_string(i % 3 == 0) + "\n";
    }
    return text;
  };
  put(folder_ / "one.csv", table(1));
  put(folder_ / "copy.csv", table(1));
  put(folder_ / "other.csv", table(2));
  const std::string run = folder_ / "run";
  const json whole =
      run_json("interact --task-column first --iterations 3 --inner-steps 5 --threads 1 --train " +
               folder_ / "one.csv" + " --save-every 0 --out " + run);
  kill_late(run);
  EXPECT_THAT(refusal("interact --resume " + run + " --train " + folder_ / "other.csv", 1),
              AllOf(HasSubstr("--resume " + run), HasSubstr("different data")));
  EXPECT_EQ(run_json("interact --resume " + run + " --train " + folder_ / "copy.csv").at("interaction"),
            whole.at("interaction"));
}

TEST_F(ResumeTest, LearnTellsOtherImagesAndFindsMovedOnes) {
  const auto picture = [](int kind, int place) {
    std::string pixels;
    for (int i = 0; i < 64; ++i) pixels += static_cast<char>((i * (kind + 2) + 9 * place) % 200);
    return grey_png(8, 8, pixels);
  };
  for (int kind = 0; kind < 12; ++kind) {
    for (int place = 0; place < 4; ++place) {
      put(folder_ / ("here/" + std::to_string(kind) + "/" + std::to_string(place) + ".png"),
          picture(kind, place));
    }
  }
  const std::string run = folder_ / "run", there = folder_ / "there";
  const json whole =
      run_json("learn --data " + folder_ / "here" +
               " --learner aid --network mlp --ways 2 --shots 1 --queries 2 --filters 4 --inner-steps 3 "
               "--meta-batch 2 --iterations 3 --records 1 --valid-tasks 2 --test-tasks 4 "
               "--threads 1 --save-every 0 --out " +
               run);
  kill_late(run);
  std::filesystem::rename(folder_ / "here", there);
  put(there + "/7/2.png", picture(3, 0));
  EXPECT_THAT(refusal("learn --resume " + run + " --data " + there, 1), HasSubstr("different data"));
  put(there + "/7/2.png", picture(7, 2));
  EXPECT_EQ(run_json("learn --resume " + run + " --data " + there).at("test_loss"), whole.at("test_loss"));
}

// One pixel or one feature is another; labels and sizes are the same.
TEST_F(ResumeTest, OneOtherPixelIsOtherImages) {
  const Tensor pixels = at::arange(60 * 64).reshape({60, 64}).remainder(211), other = pixels.clone();
  other[7][9] = 250;
  const std::string labels = idx({60}, at::arange(60).remainder(4));
  put(folder_ / "labels", labels);
  put(folder_ / "test-images", idx({60, 8, 8}, pixels));
  const std::string small =
      " --epochs 2 --channels 2 --cells 1 --batch 8 --threads 1 --save-every 0 --data " + folder_ / "images" +
      " --labels " + folder_ / "labels";
  const std::string commands[] = {
      "search --method darts-first-order --eigenvalue-products 0" + small,
      "train --arch '|skip_connect~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|' "
      "--test-images " +
          folder_ / "test-images" + " --test-labels " + folder_ / "labels" + small};
  for (const std::string& command : commands) {
    const std::string name = command.substr(0, command.find(' ')), run = folder_ / name;
    put(folder_ / "images", idx({60, 8, 8}, pixels));
    run_json(command + " --out " + run);
    kill_late(run);
    put(folder_ / "images", idx({60, 8, 8}, other));
    EXPECT_THAT(refusal(name + " --resume " + run, 1), HasSubstr("--resume " + run)) << name;
    put(folder_ / "images", idx({60, 8, 8}, pixels));
    run_json(name + " --resume " + run);
  }
}

TEST_F(ResumeTest, OneOtherFeatureIsOtherExamples) {
  const auto table = [](double first) {
    std::string text;
    for (int i = 0; i < 24; ++i) {
      text += std::to_string(i == 0 ? first : std::sin(i)) + "," + std::to_string(std::cos(3 * i)) + "," +
              std::to_string(i % 3 == 0) + "\n";
    }
    return text;
  };
  const auto sparse = [](double first) {
    std::string text;
    for (int i = 0; i < 24; ++i) {
      text += std::to_string(i % 2) + " " + std::to_string(i % 5 + 1) + ":" +
              std::to_string(i == 0 ? first : 1.0 + i % 3) + " 9:1\n";
    }
    return text;
  };
  put(folder_ / "valid.csv", table(0.5));
  put(folder_ / "valid.svm", sparse(1));
  struct Job {
    std::string command, file;
    std::string before, after;
  };
  const std::string few = " --iterations 3 --inner-steps 5 --threads 1 --save-every 0";
  const Job jobs[] = {{"clean --final-steps 2" + few, "train.csv", table(0.5), table(0.25)},
                      {"tune" + few, "train.csv", table(0.5), table(0.25)},
                      {"tune" + few, "train.svm", sparse(1), sparse(2)}};
  for (const Job& job : jobs) {
    const std::string name = job.command.substr(0, job.command.find(' '));
    const std::string run = folder_ / (name + job.file), ending = job.file.substr(5);
    put(folder_ / job.file, job.before);
    run_json(job.command + " --train " + folder_ / job.file + " --valid " + folder_ / ("valid" + ending) +
             " --out " + run);
    kill_late(run);
    put(folder_ / job.file, job.after);
    EXPECT_THAT(refusal(name + " --resume " + run, 1),
                AllOf(HasSubstr("--resume " + run), HasSubstr("different data")));
    put(folder_ / job.file, job.before);
    run_json(name + " --resume " + run);
  }
}

TEST_F(ResumeTest, AFinishedLearnerIsLeftAsItIs) {
  const std::string run = folder_ / "run";
  const json whole = run_json(learn + " --out " + run);
  const auto written = std::filesystem::last_write_time(run + "/model");
  const Output again = run_program("learn --json --resume " + run);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("is finished"));
  EXPECT_EQ(again.json(), whole);
  EXPECT_EQ(std::filesystem::last_write_time(run + "/model"), written);
}

}  // namespace
}  // namespace bilevel::test
