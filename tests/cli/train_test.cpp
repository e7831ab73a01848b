// `bilevel train` as a user meets it, on small made-up images in IDX files.

#include <gmock/gmock.h>

#include "bilevel/nas/synthetic_images.h"
#include "bilevel/run/checkpoint.h"
#include "tests/cli/background.h"
#include "tests/cli/image_files.h"
#include "tests/cli/program.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string cell =
    "|nor_conv_3x3~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|avg_pool_3x3~1|nor_conv_1x1~2|";

class TrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write("train", 200, 1);
    write("test", 100, 2);
  }

  void write(const std::string& name, int64_t samples, uint64_t seed) {
    nas::SyntheticImages drawn{.samples = samples, .channels = 1, .noise = 0.3, .seed = seed};
    drawn.classes = 4;
    const LabelledImages images = nas::draw_images(drawn, doubles());
    put(folder_ / (name + ".images"), idx({samples, 8, 8}, (images.images * 40 + 128).clamp(0, 255)));
    put(folder_ / (name + ".labels"), idx({samples}, images.labels));
  }

  std::string images() const {
    return " --data " + folder_ / "train.images" + " --labels " + folder_ / "train.labels" +
           " --test-images " + folder_ / "test.images" + " --test-labels " + folder_ / "test.labels";
  }
  std::string small() const {
    return images() + " --arch '" + cell +
           "' --channels 4 --cells 1 --batch 25 --threads 1 --crop-padding 1" + " --no-flip";
  }
  static std::string refusal(const std::string& arguments, int exit_code = 2) {
    const Output output = run_program("train " + arguments);
    EXPECT_EQ(output.exit_code, exit_code) << output.err;
    EXPECT_THAT(output.out, IsEmpty());
    return output.err;
  }

  const TemporaryFolder folder_;
};

TEST_F(TrainTest, LearnsAndSaysHow) {
  const Output output = run_program("train --epochs 3 --json --out " + folder_ / "a/b" + small());
  ASSERT_EQ(output.exit_code, 0) << output.err;
  const json report = output.json();
  EXPECT_EQ(report.at("genotype"), cell);
  EXPECT_EQ(report.at("space"), "nasbench201");
  EXPECT_EQ(report.at("finished"), true);
  EXPECT_EQ(report.at("train_images"), 200);
  EXPECT_GT(report.at("test_accuracy"), 85);  // chance is 25
  ASSERT_EQ(report.at("history").size(), 3U);
  EXPECT_EQ(report["history"][2].at("test_accuracy"), report.at("test_accuracy"));
  EXPECT_LT(report["history"][2].at("train_loss"), report["history"][0].at("train_loss"));
  EXPECT_THAT(output.err, HasSubstr("epoch 3/3: loss "));
  const json counted = run_program(
                           "count --json --channels 4 --cells 1 --image-size 8 --input-channels 1 "
                           "--classes 4 --arch '" +
                           cell + "'")
                           .json();
  EXPECT_EQ(report.at("parameters"), counted["genotypes"][0].at("parameters"));
  EXPECT_EQ(report.at("multiply_adds"), counted["genotypes"][0].at("multiply_adds"));

  EXPECT_EQ(read_text(folder_ / "a/b/genotype.txt"), cell + "\n");
  EXPECT_EQ(json::parse(read_text(folder_ / "a/b/genotype.json")).at("space"), "nasbench201");
  EXPECT_EQ(json::parse(read_text(folder_ / "a/b/summary.json")), report);
  std::ifstream metrics(folder_ / "a/b/metrics.jsonl");
  size_t lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    json expected = report["history"][lines];
    expected["step"] = lines + 1;
    EXPECT_EQ(json::parse(line), expected);
  }
  EXPECT_EQ(lines, 3U);
  EXPECT_EQ(load_checkpoint(folder_ / "a/b/checkpoint").tensors.at("training/w").numel(),
            report.at("parameters"));
  EXPECT_THAT(refusal("--epochs 3 --out " + folder_ / "a/b" + small()), HasSubstr("--resume"));
  // Going on with what is finished changes nothing.
  const Output again = run_program("train --json --quiet --resume " + folder_ / "a/b");
  EXPECT_EQ(again.json(), report);
  EXPECT_THAT(again.err, IsEmpty());
}

TEST_F(TrainTest, TextAndAGenotypeFile) {
  put(folder_ / "cell.txt", "# found\n" + cell + "\n");
  const std::string rest =
      images() + " --channels 4 --cells 1 --batch 25 --threads 1 --epochs 1 --train-size 50";
  const Output output = run_program("train --quiet --genotype " + folder_ / "cell.txt" + rest);
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_THAT(output.out, AllOf(HasSubstr(cell), HasSubstr("50 training and 100 test images"),
                                HasSubstr("seconds\n     1"), HasSubstr("test accuracy ")));
  EXPECT_THAT(output.err, IsEmpty());
  // JSON says its space by itself.
  put(folder_ / "cell.json",
      R"({"space": "nasbench1shot1-1", "cells": [{"name": "cell", "nodes": [
          {"operation": "conv3x3-bn-relu", "inputs": [{"from": 0}]},
          {"operation": "maxpool3x3", "inputs": [{"from": 0}, {"from": 1}]},
          {"operation": "conv1x1-bn-relu", "inputs": [{"from": 0}, {"from": 1}]},
          {"operation": "maxpool3x3", "inputs": [{"from": 1}, {"from": 3}]},
          {"operation": "output", "inputs": [{"from": 0}, {"from": 2}]}]}]})");
  const json report = run_program("train --json --quiet --genotype " + folder_ / "cell.json" + rest).json();
  EXPECT_EQ(report.at("space"), "nasbench1shot1-1");
  put(folder_ / "bad.txt", "|nor_conv_3x3~0|+|\n");
  EXPECT_THAT(refusal("--genotype " + folder_ / "bad.txt" + rest), HasSubstr("bad.txt: "));
  EXPECT_THAT(refusal("--genotype " + folder_ / "nowhere.txt" + rest, 1), HasSubstr("nowhere.txt"));
}

// A polite kill in the middle, then --resume: the files of an uninterrupted run, bit for bit.
TEST_F(TrainTest, AKilledRunGoesOnToTheSameBits) {
  const std::string run = "train --quiet --epochs 60" + small() + " --out ";
  ASSERT_EQ(run_program(run + folder_ / "whole").exit_code, 0);
  Background program(run + folder_ / "stopped", folder_ / "err");
  // After the first epoch of many.
  const int status =
      program.end_when([&] { return !read_text(folder_ / "stopped/metrics.jsonl").empty(); }, SIGTERM);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 130)
      << "too late to stop it, or it could not be stopped: " << read_text(folder_ / "err");
  EXPECT_THAT(read_text(folder_ / "err"), HasSubstr("--resume"));
  EXPECT_EQ(json::parse(read_text(folder_ / "stopped/summary.json")).at("finished"), false);

  const Output resumed = run_program("train --quiet --json --threads 1 --resume " + folder_ / "stopped");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.json().at("finished"), true);
  const Checkpoint whole = load_checkpoint(folder_ / "whole/checkpoint");
  const Checkpoint stopped = load_checkpoint(folder_ / "stopped/checkpoint");
  ASSERT_EQ(whole.tensors.size(), 3U);
  for (const auto& [name, tensor] : whole.tensors)
    EXPECT_TRUE(tensor.equal(stopped.tensors.at(name))) << name;
  EXPECT_EQ(whole.metadata.at("training").at("history").back().at("train_loss"),
            stopped.metadata.at("training").at("history").back().at("train_loss"));
}

TEST_F(TrainTest, ResumeRefusesOtherWordsAndOtherImages) {
  const std::string out = folder_ / "out";
  put(folder_ / "cell.txt", cell);
  ASSERT_EQ(run_program("train --quiet --epochs 1 --out " + out + " --genotype " + folder_ / "cell.txt" +
                        images() + " --channels 4 --cells 1 --batch 25 --threads 1")
                .exit_code,
            0);
  // As if it had been killed before its last word, and its cell's file were gone.
  json facts = json::parse(read_text(out + "/run.json"));
  facts["status"] = "running";
  put(out + "/run.json", facts.dump());
  std::filesystem::remove(folder_ / "cell.txt");
  EXPECT_THAT(refusal("--epochs 4 --resume " + out),
              AllOf(HasSubstr("with --epochs"), HasSubstr("keeps its options")));
  EXPECT_THAT(refusal("--resume " + folder_ / "nowhere", 1), HasSubstr("there is no run.json"));
  const std::string labels = read_text(folder_ / "train.labels");
  put(folder_ / "train.labels", idx({200}, at::arange(200).add(1).remainder(4)));
  EXPECT_THAT(refusal("--resume " + out, 1),
              HasSubstr("the images or their labels have changed since the run was started"));
  put(folder_ / "train.labels", labels);
  const Output again =
      run_program("train --quiet --json --epochs 1 --resume " + out);  // the same words may be said
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json().at("genotype"), cell);

  put(out + "/run.json", facts.dump());
  const std::string bytes = read_text(out + "/checkpoint");
  put(out + "/checkpoint", bytes.substr(0, bytes.size() / 2));
  std::filesystem::remove(out + "/checkpoint.previous");
  EXPECT_THAT(refusal("--resume " + out, 1), AllOf(HasSubstr(out + "/checkpoint"), HasSubstr("previous")));
}

TEST_F(TrainTest, BadWordsAreNamedAndNothingIsLeft) {
  write("few", 10, 3);
  const std::string out = " --out " + folder_ / "out";
  const std::string few =
      " --data " + folder_ / "few.images" + " --labels " + folder_ / "few.labels" + " --arch '" + cell + "'";
  const std::pair<std::string, const char*> cases[] = {
      {images(), "--arch TEXT or --genotype FILE"},
      {images() + " --arch '|nor_conv_7x7~0|'", "nor_conv_7x7"},
      {few, "only 8 training images"},
      {small() + " --train-size 201", "--train-size 201"},
      {small() + " --train-size 20", "--batch 25"},
      {small() + " --drop-path 0.2", "--drop-path 0.2"},
      {small() + " --auxiliary 0.4", "only the DARTS space"},
      {small() + " --rate -1", "--rate -1"},
      {small() + " --rate 1e39", "--rate 1e39: must be above 0 and at most 3.4e+38"},
      {small() + " --weight-decay 1e39", "--weight-decay 1e39"},
      {"--data nothing --arch '" + cell + "'", "--data nothing: must be one of"},
      {" --data " + folder_ / "train.images" + " --arch '" + cell + "'", "--labels"},
  };
  for (const auto& [arguments, expected] : cases) {
    SCOPED_TRACE(arguments);
    EXPECT_THAT(refusal(arguments + out), HasSubstr(expected));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  }
  put(folder_ / "test.images", idx({100, 4, 4}, at::zeros({100, 4, 4})));  // another size
  EXPECT_THAT(refusal(small() + out, 1), HasSubstr("--image-size"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

TEST_F(TrainTest, ARateThatDivergesStopsWithEpochAndStep) {
  const Output output = run_program("train --rate 1e30 --out " + folder_ / "out" + small());
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err, AllOf(HasSubstr("epoch 1, step 2 of 8"), HasSubstr("--rate")));
  EXPECT_THAT(output.out, IsEmpty());
  EXPECT_EQ(json::parse(read_text(folder_ / "out/run.json")).at("status"), "failed");
}

// The loss of a step is that before it: only the test sees what the last one did.
TEST_F(TrainTest, ALastStepThatDivergesIsNotAnAccuracy) {
  const Output output =
      run_program("train --rate 1e38 --epochs 1 --batch 200 --json --out " + folder_ / "out" + images() +
                  " --arch '" + cell + "' --channels 4 --cells 1 --threads 1");
  EXPECT_EQ(output.exit_code, 3) << output.out;
  EXPECT_THAT(output.err, AllOf(HasSubstr("after epoch 1"), HasSubstr("not finite"), HasSubstr("--rate")));
  EXPECT_THAT(output.out, IsEmpty());
  EXPECT_EQ(json::parse(read_text(folder_ / "out/run.json")).at("status"), "failed");
}

}  // namespace
}  // namespace bilevel::test
