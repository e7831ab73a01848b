// `bilevel clean` and `bilevel data` as a user runs them: what they print and write, and for every kind of
// bad input a message that names it, with nothing on stdout and nothing left behind.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/data/npy.h"
#include "bilevel/problems/label_noise.h"
#include "bilevel/problems/synthetic_classes.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string table(const Tensor& features, const Tensor& labels) {
  std::string text;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    for (int64_t j = 0; j < features.size(1); ++j)
      text += std::to_string(features[i][j].item<double>()) + ",";
    text += std::to_string(labels[i].item<int64_t>()) + "\n";
  }
  return text;
}

std::string svmlight(const Tensor& features, const Tensor& labels) {
  std::string text;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    text += std::to_string(labels[i].item<int64_t>());
    for (int64_t j = 0; j < features.size(1); ++j) {
      text += " " + std::to_string(j + 1) + ":" + std::to_string(features[i][j].item<double>());
    }
    text += "\n";
  }
  return text;
}

std::string idx(const std::vector<int64_t>& shape, const std::string& values) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const int64_t length : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(length >> shift & 0xff);
  }
  return file + values;
}

// Three clouds; a third of the training labels drawn anew.
class CleanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    train_ = draw_gaussian_classes({.classes = 3, .features = 4, .separation = 2}, 90, 1, "train");
    valid_ = draw_gaussian_classes({.classes = 3, .features = 4, .separation = 2}, 60, 1, "valid");
    Random random(2);
    noise_ = replace_labels(train_.labels, 3, 0.35, random);
    write_npy(folder_ / "x.npy", train_.features);
    write_npy(folder_ / "y.npy", noise_.labels);
    write_npy(folder_ / "xv.npy", valid_.features);
    write_npy(folder_ / "yv.npy", valid_.labels);
  }

  std::string npy() const { return own("x.npy", "y.npy", "xv.npy", "yv.npy"); }
  std::string own(const std::string& train, const std::string& labels, const std::string& valid,
                  const std::string& valid_labels) const {
    std::string text = " --train '" + folder_ / train + "' --valid '" + folder_ / valid + "'";
    if (!labels.empty()) text += " --train-labels '" + folder_ / labels + "'";
    if (!valid_labels.empty()) text += " --valid-labels '" + folder_ / valid_labels + "'";
    return text;
  }
  static json clean(const std::string& arguments) {
    const Output output = run_program("clean --json --iterations 60 --threads 1 " + arguments);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.json();
  }
  // The message of a run that must fail; it may leave nothing.
  std::string refusal(const std::string& arguments) const {
    const Output output = run_program("clean --iterations 2 --out '" + folder_ / "a/b" + "' " + arguments);
    EXPECT_TRUE(output.exit_code == 1 || output.exit_code == 2) << output.exit_code << output.err;
    EXPECT_THAT(output.out, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
    return output.err;
  }

  TemporaryFolder folder_;
  LabelledExamples train_, valid_;
  NoisyLabels noise_;
};

TEST_F(CleanTest, WritesWeightsAndSuspectsOfAUsersFiles) {
  const json report = clean(npy() + " --test '" + folder_ / "xv.npy" + "' --test-labels '" +
                            folder_ / "yv.npy" + "' --out '" + folder_ / "deep/out" + "'");
  for (const char* key :
       {"test_accuracy", "valid_accuracy", "valid_loss", "baseline_test_accuracy", "seconds"}) {
    EXPECT_TRUE(report.at(key).is_number()) << key;
  }
  EXPECT_EQ(report.at("test_accuracy"), report.at("valid_accuracy"));  // the same file
  EXPECT_GE(report.at("test_accuracy").get<double>(), report.at("baseline_test_accuracy").get<double>());
  EXPECT_FALSE(report.contains("f1"));  // the program cannot know the truth here
  EXPECT_EQ(report.at("counts").at("cross"), 60 * 5);
  EXPECT_TRUE(report.at("warnings").empty());

  const auto weights = lines_of(folder_ / "deep/out/weights.csv");
  ASSERT_EQ(weights.size(), 91U);
  EXPECT_EQ(weights[0], "index,given_label,weight,x,suggested_label");
  const auto suspects = lines_of(folder_ / "deep/out/suspects.csv");
  EXPECT_EQ(suspects[0], "index,given_label,weight,suggested_label,x");
  ASSERT_EQ(suspects.size(), 1 + report.at("flagged").get<size_t>());
  // The truth, which the test knows: nearly all that is wrong is listed, and little else.
  Tensor flagged = at::zeros({90}, at::TensorOptions().dtype(at::kBool));
  for (size_t i = 1; i < suspects.size(); ++i) {
    const int64_t index = std::stol(suspects[i]);
    flagged[index] = true;
    const std::string given = std::to_string(noise_.labels[index].item<int64_t>());
    EXPECT_EQ(suspects[i].rfind(std::to_string(index) + "," + given + ",0.0", 0), 0U) << suspects[i];
  }
  EXPECT_GT(f1_score(flagged, noise_.wrong), 0.85);
  EXPECT_EQ(json::parse(read_text(folder_ / "deep/out/summary.json")), report);
  EXPECT_EQ(report.at("folder"), folder_ / "deep/out");
  EXPECT_EQ(lines_of(folder_ / "deep/out/metrics.jsonl").size(), report.at("solve").at("history").size());
}

TEST_F(CleanTest, EveryFormatGivesTheSameAnswer) {
  const json reference = clean(npy() + " --dtype double");
  put(folder_ / "t.csv", table(train_.features, noise_.labels));
  put(folder_ / "v.csv", table(valid_.features, valid_.labels));
  put(folder_ / "t.svm", svmlight(train_.features, noise_.labels));
  put(folder_ / "v.svm", svmlight(valid_.features, valid_.labels));
  for (const std::string ending : {".csv", ".svm"}) {
    SCOPED_TRACE(ending);
    const json other = clean(own("t" + ending, "", "v" + ending, "") + " --dtype double");
    EXPECT_EQ(other.at("flagged"), reference.at("flagged"));
    EXPECT_NEAR(other.at("valid_loss"), reference.at("valid_loss").get<double>(),
                1e-4);  // six digits as text
  }
  const json again = clean(npy() + " --dtype double");
  EXPECT_EQ(again.at("valid_loss"), reference.at("valid_loss"));
  const json plain = clean(npy() + " --dtype double --no-bias");
  EXPECT_NE(plain.at("valid_loss"), reference.at("valid_loss"));
}

TEST_F(CleanTest, ThresholdAndSuspectsShapeTheList) {
  const json report = clean(npy() + " --threshold -1 --suspects 3 --out '" + folder_ / "out" + "'");
  EXPECT_EQ(lines_of(folder_ / "out/suspects.csv").size(), 4U);
  EXPECT_EQ(report.at("most_suspect").size(), 3U);
  EXPECT_GT(report.at("flagged"), 3);
}

TEST_F(CleanTest, CnnCleansImages) {
  // Bright upper or lower halves; the first six labels are swapped.
  std::string images, labels, swapped;
  for (int i = 0; i < 40; ++i) {
    const bool lower = i % 2 == 1;
    for (int pixel = 0; pixel < 64; ++pixel) {
      images += static_cast<char>(((pixel >= 32) == lower ? 200 : 20) + (7 * i + 3 * pixel) % 20);
    }
    labels += static_cast<char>(lower);
    swapped += static_cast<char>(lower != (i < 6));
  }
  put(folder_ / "i.idx", idx({40, 8, 8}, images));
  put(folder_ / "y.idx", idx({40}, swapped));
  put(folder_ / "yv.idx", idx({40}, labels));
  const json report = clean("--model cnn --inner-steps 10 --final-steps 20 --inner-batch 0 --outer-batch 0" +
                            own("i.idx", "y.idx", "i.idx", "yv.idx"));
  EXPECT_EQ(report.at("flagged"), 6);
  EXPECT_EQ(report.at("valid_accuracy"), 100);
  EXPECT_THAT(refusal("--model cnn" + npy()), AllOf(HasSubstr("--model cnn"), HasSubstr("x.npy")));
}

TEST_F(CleanTest, TableForAReader) {
  const Output output =
      run_program("clean --iterations 40 --threads 1 --out '" + folder_ / "out" + "'" + npy());
  EXPECT_EQ(output.exit_code, 0) << output.err;
  for (const char* text :
       {"90 training, 60 validation and 0 test examples", "the learned weights", "all labels alike",
        "are suspect (x < -3, weight < 0.047)", "suggested", "cross products", "written to"}) {
    EXPECT_THAT(output.out, HasSubstr(text));
  }
  const Output unsolved = run_program("clean --iterations 2 --inner-steps 1" + npy());
  EXPECT_THAT(unsolved.err,
              AllOf(HasSubstr("far from solved"), HasSubstr("no example is below the threshold")));
}

TEST_F(CleanTest, BadFilesAreNamedWithWhereAndWhat) {
  const std::string csv = table(train_.features, noise_.labels);
  const std::string valid = table(valid_.features, valid_.labels);
  put(folder_ / "t.csv", csv);
  put(folder_ / "v.csv", valid);
  const auto with = [&](const std::string& name, const std::string& bytes) {
    put(folder_ / name, bytes);
    return refusal(own(name, "", "v.csv", ""));
  };
  EXPECT_THAT(refusal(own("nowhere.csv", "", "v.csv", "")), HasSubstr("nowhere.csv"));         // missing
  EXPECT_THAT(with("empty.csv", ""), AllOf(HasSubstr("empty.csv"), HasSubstr("empty file")));  // truncated
  EXPECT_THAT(with("cut.csv", csv.substr(0, csv.size() - 6)),
              AllOf(HasSubstr("cut.csv: line 90"), HasSubstr("expected 5 fields"), HasSubstr("found 4")));
  EXPECT_THAT(with("word.csv", "1,2,3,many,0\n" + csv),
              AllOf(HasSubstr("word.csv: line 1"), HasSubstr("'many'")));
  EXPECT_THAT(with("nan.csv", csv + "1,nan,3,4,0\n"),
              AllOf(HasSubstr("nan.csv: line 91"), HasSubstr("found 'nan' in column 1"),
                    HasSubstr("--missing mean")));
  EXPECT_THAT(with("label.csv", csv + "1,2,3,4,0.5\n"),
              AllOf(HasSubstr("line 91"), HasSubstr("whole number")));
  EXPECT_THAT(
      with("narrow.csv", "1,2,0\n1,3,1\n1,4,2\n1,3,1\n1,2,0\n1,2,2\n"),
      AllOf(HasSubstr("v.csv"), HasSubstr("expected 3 columns"), HasSubstr("found 5")));  // mismatched
  EXPECT_THAT(with("picture.png", "\x89PNG\r\n"),
              AllOf(HasSubstr("byte 0"), HasSubstr("IDX"), HasSubstr("svmlight")));

  put(folder_ / "cut.idx", idx({90, 4}, std::string(100, 'a')));
  EXPECT_THAT(refusal(own("cut.idx", "y.npy", "xv.npy", "yv.npy")),
              AllOf(HasSubstr("cut.idx: byte 12"), HasSubstr("360 bytes"), HasSubstr("100")));
  put(folder_ / "long.idx", idx({90, 4}, std::string(400, 'a')));  // oversized
  EXPECT_THAT(refusal(own("long.idx", "y.npy", "xv.npy", "yv.npy")), HasSubstr("long.idx: byte 372"));
  const std::string array = read_text(folder_ / "x.npy");
  put(folder_ / "cut.npy", array.substr(0, array.size() - 8));
  EXPECT_THAT(refusal(own("cut.npy", "y.npy", "xv.npy", "yv.npy")), HasSubstr("cut.npy: byte"));
  Tensor spoiled = train_.features.clone();
  spoiled[17][2] = std::numeric_limits<double>::infinity();
  write_npy(folder_ / "inf.npy", spoiled);
  EXPECT_THAT(refusal(own("inf.npy", "y.npy", "xv.npy", "yv.npy")),
              AllOf(HasSubstr("inf.npy"), HasSubstr("example 17, column 2")));
  EXPECT_THAT(refusal(own("x.npy", "yv.npy", "xv.npy", "yv.npy")),
              AllOf(HasSubstr("yv.npy"), HasSubstr("expected 90 labels"), HasSubstr("found 60")));
  EXPECT_THAT(refusal(own("y.npy", "x.npy", "xv.npy", "yv.npy")), HasSubstr("swapped"));
  write_npy(folder_ / "huge.npy", train_.features * 1e30);
  EXPECT_THAT(refusal(own("huge.npy", "y.npy", "xv.npy", "yv.npy")), HasSubstr("far too large"));
  EXPECT_THAT(refusal(own("x.npy", "", "xv.npy", "yv.npy")), AllOf(HasSubstr("x.npy"), HasSubstr("labels")));
}

TEST_F(CleanTest, BadLabelsAreNamedWithExampleAndClass) {
  const auto with = [&](const Tensor& labels, const std::string& more = "") {
    write_npy(folder_ / "bad.npy", labels);
    return refusal(own("x.npy", "y.npy", "xv.npy", "bad.npy") + more);
  };
  Tensor labels = valid_.labels.clone();
  labels[7] = 9;
  EXPECT_THAT(with(labels), AllOf(HasSubstr("bad.npy: example 7"), HasSubstr("0 1 2"), HasSubstr("found 9")));
  EXPECT_THAT(with(at::zeros_like(labels)), AllOf(HasSubstr("bad.npy"), HasSubstr("at least two classes")));
  EXPECT_THAT(with(valid_.labels.clamp_max(1)), AllOf(HasSubstr("bad.npy"), HasSubstr("none of label 2")));
  EXPECT_THAT(with(valid_.labels, " --classes 4"), AllOf(HasSubstr("y.npy"), HasSubstr("none of label 3")));
  EXPECT_THAT(with(valid_.labels, " --classes 2"), AllOf(HasSubstr("y.npy: example"), HasSubstr("found 2")));
  write_npy(folder_ / "numbers.npy", at::arange(90));
  EXPECT_THAT(refusal(own("x.npy", "numbers.npy", "xv.npy", "yv.npy")), HasSubstr("90 different labels"));
}

TEST_F(CleanTest, BadOptionsAreNamed) {
  const std::pair<std::string, const char*> cases[] = {
      {npy() + " --suspects 91", "--suspects 91: must be 0"},
      {npy() + " --suspects -1", "--suspects -1: must be"},
      {npy() + " --threshold nan", "--threshold nan: must be a finite number"},
      {npy() + " --algorithm magic", "magic"},
      {npy() + " --model forest", "forest"},
      {npy() + " --regularization -1", "--regularization -1: must be"},
      {npy() + " --final-steps -1", "--final-steps -1: must be"},
      {npy() + " --classes 1", "--classes 1: must be 2 to"},
      {npy() + " --label-column 0 --test-labels y.npy", "--test is missing"},
      {npy() + " --corruption 0.5", "--corruption"},
      {npy() + " --data mnist", "not both"},
      {"--train x.npy --train-labels y.npy", "--valid is missing"},
      {"", "--train and --valid are missing"},
      {"--data cifar10", "mnist or fashion-mnist"},
      {"--data mnist --corruption 2", "--corruption 2: must be at least 0 and at most 1"},
      {"--data mnist --train-size 3", "--train-size 3: must be 10 to 60000"},
      {"--data mnist --data-dir '" + folder_ / "nothing" + "'", "bilevel data get mnist"},
  };
  for (const auto& [arguments, expected] : cases) {
    SCOPED_TRACE(arguments);
    EXPECT_THAT(refusal(arguments), HasSubstr(expected));
  }
  put(folder_ / "file", "");
  const Output blocked = run_program("clean --out '" + folder_ / "file" + "'" + npy());
  EXPECT_THAT(blocked.err, AllOf(HasSubstr("--out"), HasSubstr("a file is in its place")));
  EXPECT_THAT(blocked.out, IsEmpty());
}

TEST_F(CleanTest, ARateThatDivergesStopsWithItsCause) {
  const Output output = run_program("clean --inner-rate 1e30 --out '" + folder_ / "out" + "'" + npy());
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err, HasSubstr("inner rate 1e+30"));
  EXPECT_THAT(output.out, AllOf(HasSubstr("failure in iteration 1"), HasSubstr("repair: none")));
  const json summary = json::parse(read_text(folder_ / "out/summary.json"));
  EXPECT_EQ(summary.at("solve").at("failures").size(), 1U);
  const json run = run_program("show --json '" + folder_ / "out" + "'").json();
  EXPECT_EQ(run.at("status"), "failed");
  EXPECT_THAT(run.at("message"), HasSubstr("inner rate 1e+30"));
  EXPECT_FALSE(run.at("metrics").empty());
}

TEST_F(CleanTest, ARepairStandsInTheText) {
  const Output output =
      run_program("clean --threads 1 --iterations 5 --inner-rate 1e30 --on-failure backtrack --out '" +
                  folder_ / "out" + "'" + npy());
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(HasSubstr("failure in iteration 1"), HasSubstr("inner rate 1e+30 to")));
}

TEST_F(CleanTest, GoesOnOnlyWithTheDataThatItBeganWith) {
  const std::string out = folder_ / "out";
  ASSERT_EQ(
      run_program("clean --quiet --json --iterations 30 --threads 1 --out '" + out + "'" + npy()).exit_code,
      0);
  // As if it had been killed before its last word.
  json facts = json::parse(read_text(out + "/run.json"));
  facts["status"] = "running";
  put(out + "/run.json", facts.dump());
  Tensor other = noise_.labels.clone();
  other[3] = (other[3].item<int64_t>() + 1) % 3;
  write_npy(folder_ / "y.npy", other);
  const Output refused = run_program("clean --quiet --resume '" + out + "'");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--resume " + out), HasSubstr("different data")));
  write_npy(folder_ / "y.npy", noise_.labels);
  const json before = json::parse(read_text(out + "/summary.json"));
  const Output again = run_program("clean --quiet --json --resume '" + out + "'");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json().at("valid_loss"), before.at("valid_loss"));
  EXPECT_EQ(again.json().at("solve"), before.at("solve"));  // nothing was left of it to do
}

// Where the set was fetched: BILEVEL_DATA names the folder given to `bilevel data get --to`.
TEST_F(CleanTest, NamedSetKnowsTheTruth) {
  const json sets = run_program("data --json").json().at("sets");
  for (const json& set : sets) {
    if (set.at("name") == "fashion-mnist" && set.at("folder").is_null()) {
      GTEST_SKIP() << "SKIPPED: set BILEVEL_DATA to a folder that has fashion-mnist";
    }
  }
  const json report =
      clean("--data fashion-mnist --train-size 500 --valid-size 500 --corruption 0.5 --out '" +
            folder_ / "out" + "'");
  EXPECT_EQ(report.at("test_examples"), 69000);
  EXPECT_GT(report.at("f1"), 0.6);
  EXPECT_GT(report.at("precision"), 0.9);
  EXPECT_GT(report.at("test_accuracy").get<double>(), report.at("baseline_test_accuracy").get<double>() + 2);
  EXPECT_LT(report.at("recall_replaced"), report.at("recall"));
  const auto noise = lines_of(folder_ / "out/noise.csv");
  ASSERT_EQ(noise.size(), 501U);
  EXPECT_EQ(noise[0], "index,position,clean_label,given_label,replaced,wrong");
  EXPECT_THAT(lines_of(folder_ / "out/suspects.csv")[0], HasSubstr("clean_label,wrong,replaced"));
}

TEST(Data, ListsTheSetsAndNamesWhatItDoesNotKnow) {
  const TemporaryFolder folder;
  const json sets = run_program("data --json --data-dir '" + folder / "none" + "'").json().at("sets");
  ASSERT_EQ(sets.size(), 4U);
  EXPECT_EQ(sets[0].at("name"), "mnist");
  EXPECT_TRUE(sets[0].at("folder").is_null());
  EXPECT_EQ(sets[2].at("bytes"), 6 * 30730000);
  EXPECT_THAT(run_program("data").out, AllOf(HasSubstr("fashion-mnist"), HasSubstr("bilevel data get")));
  const Output unknown = run_program("data get imagenet --to '" + folder / "none" + "'");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("imagenet"), HasSubstr("mnist, fashion-mnist, cifar10")));
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
  const Output nothing = run_program("data get");
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("names is required"));
  put(folder / "file", "");
  const Output blocked = run_program("data get mnist --to '" + folder / "file" + "'");
  EXPECT_EQ(blocked.exit_code, 1);
  EXPECT_THAT(blocked.err, HasSubstr(folder / "file"));
}

TEST(Clean, HelpShowsWhatCanBeSaid) {
  const Output help = run_program("clean --help-all");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text : {"--train-labels", "--corruption", "--threshold", "--suspects", "--model", "--out",
                           "--algorithm", "--no-bias", "Examples:", "float"}) {
    EXPECT_THAT(help.out, HasSubstr(text));
  }
}

}  // namespace
}  // namespace bilevel::test
