// `bilevel tune` as a user runs it: the features that say something end up less regularised than noise, the
// same bits twice, the files it writes, and every refusal.

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bilevel/data/npy.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"

namespace bilevel::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int informative = 4, noise = 12;

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// Labels 3 and 7; the first features follow the label, the others know nothing of it. Indices from 1.
std::string svmlight(int examples, unsigned seed) {
  std::mt19937 random(seed);  // the same numbers everywhere, which distributions would not be
  const auto uniform = [&] { return static_cast<double>(random()) / 4294967296.0 - 0.5; };
  std::string text;
  for (int i = 0; i < examples; ++i) {
    const int sign = i % 2 == 0 ? 1 : -1;
    text += sign > 0 ? "7" : "3";
    for (int j = 0; j < informative + noise; ++j) {
      const double value = j < informative ? 0.15 * sign + uniform() : uniform();
      text += " " + std::to_string(j + 1) + ":" + std::to_string(value);
    }
    text += "\n";
  }
  return text;
}

// Features as they come, of scales from 0.1 to 800: gradient descent at the rate of the largest hardly moves
// the others' weights.
std::string raw_table(int examples, unsigned seed) {
  struct Feature {
    double scale, least, shift;
  };
  const std::vector<Feature> features{{800, 0.4, 0.6}, {100, 0.8, 0.3}, {20, 0.8, 0.2},
                                      {15, 0.8, 0.3},  {1, 0.2, 0.2},   {0.1, 0.5, 0.5}};
  std::mt19937 random(seed);
  std::string text = "f0,f1,f2,f3,f4,f5,label\n";
  for (int i = 0; i < examples; ++i) {
    for (const Feature& f : features) {
      const double uniform = static_cast<double>(random()) / 4294967296.0;
      text += std::to_string(f.scale * (f.least + uniform + f.shift * (i % 2))) + ",";
    }
    text += std::to_string(i % 2) + "\n";
  }
  return text;
}

class Tune : public ::testing::Test {
 protected:
  Tune() {
    write_text(train_, svmlight(60, 1));
    write_text(valid_, svmlight(400, 2));
    write_text(test_, svmlight(400, 3));
    std::string names;
    for (int j = 0; j < informative; ++j) names += "signal" + std::to_string(j) + "\n";
    for (int j = 0; j < noise; ++j) names += "noise" + std::to_string(j) + "\n";
    write_text(names_, names);
  }

  std::string files() const {
    return "--train '" + train_ + "' --valid '" + valid_ + "' --test '" + test_ + "' --features '" + names_ +
           "' --dtype double --threads 1 ";
  }
  static json tune(const std::string& arguments) {
    const Output output = run_program("tune --json " + arguments);
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.json();
  }
  // What it says on stderr, having failed and left nothing behind but a run that had begun.
  std::string refusal(const std::string& arguments, int exit_code) {
    const Output output = run_program("tune --out '" + folder_ / "out" + "' " + arguments);
    EXPECT_EQ(output.exit_code, exit_code) << output.err;
    EXPECT_EQ(output.out, "");
    if (exit_code == 3) {
      EXPECT_EQ(json::parse(read_text(folder_ / "out/run.json")).at("status"), "failed");
    } else {
      EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
    }
    return output.err;
  }
  std::string file(const std::string& name, const std::string& text) {
    write_text(folder_ / name, text);
    return folder_ / name;
  }

  TemporaryFolder folder_;
  std::string train_ = folder_ / "train.svm", valid_ = folder_ / "valid.svm", test_ = folder_ / "test.svm",
              names_ = folder_ / "names.txt";
};

TEST_F(Tune, InformativeFeaturesAreLessRegularisedThanNoise) {
  const json report = tune(files() + "--by algorithm --top 16");
  EXPECT_EQ(report.at("features"), informative + noise);
  EXPECT_EQ(report.at("nonzeros"), 60 * (informative + noise));
  EXPECT_EQ(report.at("class_names"), json::array({"3", "7"}));
  std::set<std::string> least;
  for (int i = 0; i < informative; ++i) least.insert(report.at("least_regularised").at(i).at("name"));
  EXPECT_EQ(least, (std::set<std::string>{"signal0", "signal1", "signal2", "signal3"}));
  EXPECT_LT(report.at("least_regularised").at(informative - 1).at("x"),
            report.at("most_regularised").at(noise - 1).at("x").get<double>() - 1);
  EXPECT_LT(report.at("valid_loss"), report.at("baseline_valid_loss"));
  EXPECT_LT(report.at("test_loss"), report.at("baseline_test_loss"));
  EXPECT_EQ(report.at("history").at(0).at("iteration"), 0);
  EXPECT_EQ(report.at("returned"), "tuned");
  EXPECT_EQ(report.at("counts").at("inner_gradient"), 1000);
}

TEST_F(Tune, OtherAlgorithmsBeatOneRegulariserOnTheValidationSet) {
  for (const std::string name : {"aid-fp", "reverse"}) {
    // Cold starts need an inner loop that gets somewhere.
    const json report = tune(files() + "--inner-steps 50 --iterations 30 --algorithm " + name);
    EXPECT_LT(report.at("valid_loss"), report.at("baseline_valid_loss")) << name;
    EXPECT_EQ(report.at("algorithm"), name);
  }
}

TEST_F(Tune, TheSameBitsTwiceAndAnotherSplitWithAnotherSeed) {
  const std::string arguments = "--train '" + train_ + "' --iterations 5 --inner-batch 8 --threads 1 ";
  const auto values = [&](const std::string& more) {
    json report = tune(arguments + more);
    json kept;
    for (const char* key : {"valid_loss", "train_loss", "most_regularised", "least_regularised"}) {
      kept[key] = report.at(key);
    }
    return kept;
  };
  EXPECT_EQ(values("--seed 1"), values("--seed 1"));
  EXPECT_NE(values("--seed 1"), values("--seed 2"));
}

TEST_F(Tune, SplitsTheTrainingFileInSeededParts) {
  const json halves = tune("--train '" + train_ + "' --iterations 1");
  EXPECT_EQ(halves.at("train_examples"), 30);
  EXPECT_EQ(halves.at("valid_examples"), 30);
  EXPECT_TRUE(halves.at("test_accuracy").is_null());
  EXPECT_EQ(tune("--train '" + train_ + "' --valid-part 0.25 --iterations 1").at("valid_examples"), 15);
}

TEST_F(Tune, WritesRegularisersModelAndResults) {
  const json report = tune(files() + "--iterations 5 --out '" + folder_ / "out" + "'");
  const Tensor regularisers = read_npy(folder_ / "out/regularisers.npy");
  EXPECT_EQ(regularisers.numel(), informative + noise);
  const json& most = report.at("most_regularised").at(0);
  EXPECT_DOUBLE_EQ(regularisers.max().item<double>(), most.at("regulariser").get<double>());
  EXPECT_EQ(regularisers.argmax().item<int64_t>(), most.at("column"));
  EXPECT_EQ(read_npy(folder_ / "out/model.npy").sizes(), (std::vector<int64_t>{informative + noise, 2}));
  const std::string table = read_text(folder_ / "out/regularisers.csv");
  EXPECT_TRUE(table.starts_with("feature,x,regulariser,weight_norm\n" + most.at("name").get<std::string>()));
  EXPECT_EQ(json::parse(read_text(folder_ / "out/summary.json")), report);
}

TEST_F(Tune, DenseFilesGiveTheNumbersOfSparseOnes) {
  const std::string table = "x0,x1,label\n0.5,1,2\n-1,0.25,4\n0.75,-0.5,2\n-0.5,0.125,4\n";
  const std::string sparse = "2 1:0.5 2:1\n4 1:-1 2:0.25\n2 1:0.75 2:-0.5\n4 1:-0.5 2:0.125\n";
  const std::string a = file("a.csv", table), b = file("b.svm", sparse);
  write_npy(folder_ / "x.npy",
            at::tensor({0.5, 1., -1., .25, .75, -.5, -.5, .125}, at::kDouble).view({4, 2}));
  write_npy(folder_ / "y.npy", at::tensor({2, 4, 2, 4}, at::kLong));
  const auto loss = [&](const std::string& f, const std::string& labels) {
    const auto set = [&](const std::string& name) {
      return "--" + name + " '" + f + "' " +
             (labels.empty() ? "" : "--" + name + "-labels '" + labels + "' ");
    };
    return tune(set("train") + set("valid") + "--iterations 3 --dtype double").at("valid_loss").get<double>();
  };
  EXPECT_NEAR(loss(a, ""), loss(b, ""), 1e-12);
  EXPECT_NEAR(loss(folder_ / "x.npy", folder_ / "y.npy"), loss(b, ""), 1e-12);
}

// The search itself ends at a validation loss of 0.656 from 0.608, and at chance.
TEST_F(Tune, NeverEndsWorseThanItBegan) {
  const std::string sets = "--train '" + file("raw.csv", raw_table(200, 1)) + "' --valid '" +
                           file("rawv.csv", raw_table(200, 2)) + "' --test '" +
                           file("rawt.csv", raw_table(200, 3)) + "' --threads 1 ";
  const Output output = run_program("tune --json --by algorithm " + sets + "--out '" + folder_ / "out" + "'");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const json report = output.json();
  EXPECT_GT(report.at("history").back().at("valid_loss"),
            report.at("baseline_valid_loss").get<double>() + 0.04);
  EXPECT_LE(report.at("valid_loss"), report.at("baseline_valid_loss"));
  EXPECT_GE(report.at("valid_accuracy"), report.at("baseline_valid_accuracy"));
  EXPECT_LT(report.at("best_iteration"), 100);

  // Where nothing beats x = 0 it is said, and x = 0 is what is saved.
  const Output kept = run_program("tune --json --outer-rate 1e12 --iterations 3 " + sets + "--out '" +
                                  folder_ / "kept" + "'");
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_THAT(kept.err, HasSubstr("warning: The search did not beat x = 0"));
  const json untuned = kept.json();
  EXPECT_EQ(untuned.at("returned"), "untuned");
  EXPECT_EQ(untuned.at("valid_loss"), untuned.at("baseline_valid_loss"));
  EXPECT_EQ(untuned.at("test_accuracy"), untuned.at("baseline_test_accuracy"));
  EXPECT_TRUE(read_npy(folder_ / "kept/regularisers.npy").eq(1).all().item<bool>());
  const Output text = run_program("tune --outer-rate 1e12 --iterations 3 " + sets);
  EXPECT_THAT(text.out, HasSubstr("The untuned model is returned"));
}

// By hand: from W = 0, the steps of the search at its rate, with the regularisers that are saved.
TEST_F(Tune, TheSavedModelIsTheOneOfItsRegularisers) {
  Tensor features, labels;
  {
    std::vector<double> values;
    std::vector<int64_t> classes;
    std::istringstream lines(svmlight(60, 1));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      int label = 0;
      words >> label;
      classes.push_back(label == 7 ? 1 : 0);
      for (std::string word; words >> word;) values.push_back(std::stod(word.substr(word.find(':') + 1)));
    }
    features = at::tensor(values, at::kDouble).view({60, informative + noise});
    labels = at::one_hot(at::tensor(classes, at::kLong), 2).to(at::kDouble);
  }
  for (const std::string algorithm : {"aid-cg", "f2sa", "bome"}) {
    const std::string out = folder_ / algorithm;
    const json report =
        tune(files() + "--iterations 20 --outer-rate 0.5 --outer-optimizer adam --algorithm " + algorithm +
             (algorithm == "bome" ? " --joint-rate 1" : "") + " --out '" + out + "'");
    ASSERT_EQ(report.at("returned"), "tuned") << algorithm;
    const Tensor regularisers = read_npy(out + "/regularisers.npy");
    const double rate = report.at("inner_rate"), terms = 2 * (informative + noise);
    Tensor w = at::zeros({informative + noise, 2}, at::kDouble);
    for (int t = 0; t < 200; ++t) {
      const Tensor errors = (features.mm(w).softmax(1) - labels) / 60;
      w = w - rate * (features.t().mm(errors) + 2 / terms * regularisers.unsqueeze(1) * w);
    }
    const Tensor saved = read_npy(out + "/model.npy");
    EXPECT_LT((saved - w).norm().item<double>(), 1e-9 * w.norm().item<double>()) << algorithm;
  }
}

TEST_F(Tune, PrintsNamesAndBothModels) {
  const Output output = run_program("tune --top 2 --iterations 3 " + files());
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(HasSubstr("most regularised"), HasSubstr("noise"), HasSubstr("signal"),
                                HasSubstr("untuned (x = 0)"), HasSubstr("one per feature")));
}

TEST_F(Tune, OptionsThatDoNotFitAreNamed) {
  EXPECT_THAT(refusal("", 2), HasSubstr("--train FILE or --data newsgroups"));
  EXPECT_THAT(refusal(files() + "--data newsgroups", 2), HasSubstr("cannot be combined"));
  EXPECT_THAT(refusal("--data newsgroups --test '" + test_ + "'", 2), HasSubstr("--test needs --train"));
  EXPECT_THAT(refusal("--data newsgroups --data-dir /nowhere", 1), HasSubstr("/nowhere"));
  EXPECT_THAT(refusal(files() + "--weights counts", 2), HasSubstr("--weights needs --data newsgroups"));
  EXPECT_THAT(refusal("--train '" + train_ + "' --valid-part 1.5", 2), HasSubstr("--valid-part 1.5"));
  EXPECT_THAT(refusal(files() + "--valid-part 0.5", 2), HasSubstr("--valid-part divides"));
  EXPECT_THAT(refusal("--train '" + train_ + "' --valid-labels y.npy", 2), HasSubstr("without --valid"));
  EXPECT_THAT(refusal(files() + "--algorithm magic", 2), HasSubstr("'magic' is unknown"));
  EXPECT_THAT(refusal(files() + "--inner-rate -1", 2), HasSubstr("--inner-rate -1: must be above 0"));
  EXPECT_THAT(refusal(files() + "--device cuda", 2), HasSubstr("use --device cpu"));
}

TEST_F(Tune, FilesThatAreWrongAreNamedWithLineExpectedAndFound) {
  const auto with = [&](const std::string& path) { return "--train '" + path + "'"; };
  EXPECT_THAT(refusal(with("/no/such/file.svm"), 1), HasSubstr("/no/such/file.svm"));
  EXPECT_THAT(refusal(with(file("empty.svm", "")), 1), AllOf(HasSubstr("empty.svm"), HasSubstr("expected")));
  EXPECT_THAT(refusal(with(file("cut.svm", "1 1:0.5\n2 1:0.5 2")), 1),
              AllOf(HasSubstr("cut.svm: line 2"), HasSubstr("INDEX:VALUE")));
  EXPECT_THAT(refusal(with(file("text.svm", "1 1:abc\n")), 1),
              AllOf(HasSubstr("text.svm: line 1"), HasSubstr("abc")));
  EXPECT_THAT(refusal(with(file("nan.svm", "1 1:1\n2 1:nan\n")), 1),
              AllOf(HasSubstr("nan.svm: line 2"), HasSubstr("finite")));
  EXPECT_THAT(refusal(with(file("huge.svm", "1 4000000000:1\n2 1:1\n")), 1),
              AllOf(HasSubstr("huge.svm: line 1"), HasSubstr("4000000000")));
  EXPECT_THAT(refusal(with(file("half.svm", "1.5 1:1\n2 1:1\n")), 1),
              AllOf(HasSubstr("half.svm"), HasSubstr("example 0"), HasSubstr("1.5")));
  EXPECT_THAT(refusal(with(file("one.svm", "1 1:1\n1 1:2\n")), 1),
              AllOf(HasSubstr("one.svm"), HasSubstr("at least two classes")));
  EXPECT_THAT(refusal(with(file("ragged.csv", "1,2,0\n1,2\n")), 1), HasSubstr("ragged.csv: line 2"));
  write_npy(folder_ / "x.npy", at::ones({4, 2}, at::kDouble));
  write_npy(folder_ / "y.npy", at::tensor({0, 1, 0}, at::kLong));
  EXPECT_THAT(refusal(with(folder_ / "x.npy"), 1), HasSubstr("labels"));
  EXPECT_THAT(refusal(with(folder_ / "x.npy") + " --train-labels '" + folder_ / "y.npy" + "'", 1),
              AllOf(HasSubstr("y.npy"), HasSubstr("4 labels"), HasSubstr("found 3")));
  EXPECT_THAT(refusal("--by algorithm " + with(file("zero.svm", "1 1:0\n2 1:0\n1 1:0\n2 1:0\n")), 2),
              HasSubstr("zero"));
}

TEST_F(Tune, SetsThatDoNotBelongTogetherAreNamed) {
  const std::string train = "--train '" + train_ + "' ";
  EXPECT_THAT(refusal(train + "--valid '" + file("other.svm", "3 1:1\n9 1:1\n") + "'", 1),
              AllOf(HasSubstr("other.svm"), HasSubstr("example 1"), HasSubstr("3 7"), HasSubstr("found 9")));
  EXPECT_THAT(refusal(train + "--valid '" + file("single.svm", "3 1:1\n3 1:1\n") + "'", 1),
              AllOf(HasSubstr("single.svm"), HasSubstr("at least two classes")));
  EXPECT_THAT(refusal(train + "--test '" + file("far.svm", "5 1:1\n") + "'", 1), HasSubstr("far.svm"));
  EXPECT_THAT(refusal(train + "--valid '" + file("dense.csv", "1,2,3\n4,5,7\n") + "'", 1),
              AllOf(HasSubstr("dense.csv"), HasSubstr("svmlight")));
  EXPECT_THAT(refusal("--by algorithm --train '" + file("rare.svm", "1 1:1\n2 1:2\n2 1:1\n2 1:3\n") + "'", 1),
              AllOf(HasSubstr("rare.svm"), HasSubstr("class")));
  EXPECT_THAT(refusal(train + "--features '" + file("few.txt", "one\ntwo\n") + "'", 1),
              AllOf(HasSubstr("few.txt"), HasSubstr("16 names"), HasSubstr("found 2")));
  EXPECT_THAT(refusal(train + "--features '" + file("gap.txt", "one\n\ntwo\n") + "'", 1),
              HasSubstr("gap.txt: line 2"));
}

TEST_F(Tune, RatesThatExplodeEndWithTheirOwnExitCode) {
  EXPECT_THAT(refusal(files() + "--inner-rate 1e25 --iterations 3", 3), HasSubstr("rate"));
}

TEST_F(Tune, AFailureEndsWithItsSummaryAndIsToldOnceHoweverOftenItIsResumed) {
  const std::string run = folder_ / "run";
  Output output =
      run_program("tune --json --algorithm soba --linear-rate 1000 --out '" + run + "' " + files());
  EXPECT_EQ(output.exit_code, 3);
  EXPECT_THAT(output.err, HasSubstr("take --linear-rate"));
  for (int i = 0; i < 2; ++i) {
    const json report = output.json();
    EXPECT_EQ(report, json::parse(read_text(run + "/summary.json")));
    EXPECT_EQ(report.at("stopped"), "failed");
    ASSERT_EQ(report.at("failures").size(), 1U);
    EXPECT_EQ(report.at("failures").at(0).at("repair"), "none");
    EXPECT_EQ(json::parse(read_text(run + "/run.json")).at("status"), "failed");
    output = run_program("tune --json --resume '" + run + "'");
    EXPECT_EQ(output.exit_code, 3);
  }
}

TEST_F(Tune, ARepairStandsInTheText) {
  const std::string run = folder_ / "run";
  const Output output = run_program(
      "tune --algorithm soba --linear-rate 1000 --on-failure backtrack --out '" + run + "' " + files());
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, AllOf(HasSubstr("failure in iteration"), HasSubstr("linear rate 1000 to")));
  const json report = json::parse(read_text(run + "/summary.json"));
  EXPECT_LT(report.at("valid_loss").get<double>(), report.at("baseline_valid_loss").get<double>());
  for (const json& row : report.at("most_regularised")) EXPECT_LT(std::abs(row.at("x").get<double>()), 50);
}

// How many records there are when the signal comes: none before the search, two after it.
class TuneSignal : public Tune, public ::testing::WithParamInterface<int> {};

// With some work on both sides of a search of one iteration.
TEST_P(TuneSignal, OutsideTheSearchInterruptsToo) {
  const int64_t examples = 4000, features = 100;
  write_npy(folder_ / "x.npy",
            at::sin(at::arange(examples * features, at::kDouble)).view({examples, features}));
  write_npy(folder_ / "y.npy", at::arange(examples, at::kLong).remainder(7));
  const std::string wanted = "--iterations 1 --inner-steps 400 --threads 1 --quiet --train '" +
                             folder_ / "x.npy" + "' --train-labels '" + folder_ / "y.npy" + "' --out '";
  const std::string run = folder_ / "run";
  Background program("tune " + wanted + run + "'", folder_ / "err");
  ASSERT_TRUE(program.wait_until([&] {
    const std::string lines = read_text(run + "/metrics.jsonl");
    return std::filesystem::exists(run + "/run.json") &&
           std::count(lines.begin(), lines.end(), '\n') >= GetParam();
  }));
  const int status = program.end(SIGTERM);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_THAT(read_text(folder_ / "err"), HasSubstr("bilevel tune --resume " + run));
  const json shown = run_program("show --json '" + run + "'").json();
  EXPECT_EQ(shown.at("status"), "interrupted");
  // On a busy machine the first signal may come later than it was sent, and find the search.
  EXPECT_TRUE(GetParam() == 0 || std::filesystem::exists(run + "/checkpoint"));
  const json resumed = tune("--resume '" + run + "'"), whole = tune(wanted + folder_ / "whole" + "'");
  EXPECT_EQ(resumed.at("valid_loss"), whole.at("valid_loss"));
  EXPECT_EQ(resumed.at("baseline_valid_loss"), whole.at("baseline_valid_loss"));
  EXPECT_EQ(resumed.at("outer_rate"), whole.at("outer_rate"));
}
INSTANTIATE_TEST_SUITE_P(Records, TuneSignal, ::testing::Values(0, 2));

}  // namespace
}  // namespace bilevel::test
