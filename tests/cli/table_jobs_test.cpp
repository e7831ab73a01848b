// tune and clean on a user's table, the way that is made for tables: it needs no rates, does not care for
// scales, says what it did, and refuses what it would ignore.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
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
using ::testing::Not;

void write_table(const std::string& path, const Tensor& features, const Tensor& labels) {
  std::ofstream file(path);
  file.precision(17);
  for (int64_t i = 0; i < labels.numel(); ++i) {
    for (int64_t j = 0; j < features.size(1); ++j) file << features[i][j].item<double>() << ',';
    file << 10 * labels[i].item<int64_t>() << '\n';  // labels are any whole numbers
  }
}

// Three clouds in units from 0.001 to 10,000; labels that went to the next class.
class TableJobs : public ::testing::Test {
 protected:
  TableJobs() {
    const Tensor units = at::tensor({1e-3, 1.0, 1e4, 30.0}, at::kDouble);
    const auto clouds = [&](int64_t count, const char* name) {
      LabelledExamples rows =
          draw_gaussian_classes({.classes = 3, .features = 4, .separation = 2}, count, 1, name);
      rows.features = rows.features * units;
      return rows;
    };
    const LabelledExamples train = clouds(150, "train"), valid = clouds(30, "valid"),
                           test = clouds(300, "test");
    Random random(2);
    wrong_ = random.uniform({150}, at::TensorOptions().dtype(at::kDouble)).lt(0.4);
    given_ = at::where(wrong_, (train.labels + 1).remainder(3), train.labels);
    write_table(noisy_, train.features, given_);
    write_table(train_, train.features, train.labels);
    write_table(valid_, valid.features, valid.labels);
    write_table(test_, test.features, test.labels);
    test_features_ = test.features;
    test_labels_ = test.labels;
  }

  static json run(const std::string& arguments) {
    const Output output = run_program(arguments + " --json --threads 1");
    EXPECT_EQ(output.exit_code, 0) << output.err;
    return output.json();
  }
  std::string refusal(const std::string& arguments) const {
    const Output output = run_program(arguments + " --out '" + folder_ / "refused" + "'");
    EXPECT_EQ(output.exit_code, 2) << output.err;
    EXPECT_EQ(output.out, "");
    return output.err;
  }
  std::string tuned() const { return "tune --train '" + train_ + "' --test '" + test_ + "' "; }
  std::string cleaned() const {
    return "clean --train '" + noisy_ + "' --valid '" + valid_ + "' --test '" + test_ + "' ";
  }
  // Of the model.npy of a run.
  double test_accuracy(const std::string& run) const {
    const Tensor weights = read_npy(run + "/model.npy").to(at::kDouble);
    const Tensor ones = at::ones({test_features_.size(0), 1}, at::kDouble);
    const Tensor scores = at::cat({test_features_, ones}, 1).mm(weights);
    return 100 * scores.argmax(1).eq(test_labels_).to(at::kDouble).mean().item<double>();
  }

  TemporaryFolder folder_;
  std::string noisy_ = folder_ / "noisy.csv", train_ = folder_ / "train.csv", valid_ = folder_ / "valid.csv",
              test_ = folder_ / "test.csv";
  Tensor wrong_, given_, test_features_, test_labels_;
};

TEST_F(TableJobs, TuneTakesRawFeaturesAndGivesTheModelInTheirUnits) {
  const json report = run(tuned() + "--dtype double --out '" + folder_ / "run" + "'");
  EXPECT_EQ(report.at("by"), "held-out");
  EXPECT_EQ(report.at("folds"), 5);
  EXPECT_EQ(report.at("class_names"), json::array({"0", "10", "20"}));
  EXPECT_GT(report.at("test_accuracy"), 93);
  EXPECT_NEAR(test_accuracy(folder_ / "run"), report.at("test_accuracy").get<double>(), 1e-9);
  // Plain steps at the rate of the largest column get nowhere.
  const json steps = run(tuned() + "--by algorithm --dtype double --out '" + folder_ / "steps" + "'");
  EXPECT_FALSE(steps.contains("by"));
  EXPECT_GT(report.at("test_accuracy").get<double>(), steps.at("test_accuracy").get<double>() + 10);
  EXPECT_EQ(json::parse(read_text(folder_ / "run/summary.json")), report);
}

TEST_F(TableJobs, TuneSaysWhatItReturns) {
  const Output output = run_program(tuned() + "--threads 1 --out '" + folder_ / "run" + "'");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("150 training, held out in 5 folds, and 300 test examples; 4 features"));
  EXPECT_THAT(output.out, HasSubstr("is returned: "));
  EXPECT_THAT(output.out, HasSubstr(" in the loss of "));
}

TEST_F(TableJobs, CleanFindsWrongLabelsAndShowsTheNoise) {
  const json report = run(cleaned() + "--dtype double --out '" + folder_ / "run" + "'");
  EXPECT_EQ(report.at("by"), "noise-model");
  const Output page = run_program("report '" + folder_ / "run" + "' --out '" + folder_ / "page.html" + "'");
  ASSERT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(read_text(folder_ / "page.html"), AllOf(HasSubstr("a model trained on the probable labels has"),
                                                      Not(HasSubstr("learned weights"))));
  EXPECT_EQ(report.at("returned"), "learned");
  EXPECT_GT(report.at("test_accuracy").get<double>(), report.at("baseline_test_accuracy").get<double>() + 2);
  EXPECT_LT(report.at("test_loss").get<double>(), report.at("baseline_test_loss").get<double>());
  EXPECT_NEAR(report.at("noise_matrix").at(0).at(1).get<double>(), 0.4, 0.15);
  EXPECT_NEAR(report.at("noise_matrix").at(0).at(2).get<double>(), 0, 0.1);
  EXPECT_NEAR(test_accuracy(folder_ / "run"), report.at("test_accuracy").get<double>(), 1e-9);

  std::ifstream suspects(folder_ / "run/suspects.csv");
  std::string line;
  std::getline(suspects, line);
  EXPECT_EQ(line, "index,given_label,weight,suggested_label,x");
  Tensor flagged = at::zeros({150}, at::kBool);
  while (std::getline(suspects, line)) {
    const int64_t index = std::stol(line);
    flagged[index] = true;
    const size_t first = line.find(','), second = line.find(',', first + 1),
                 third = line.find(',', second + 1);
    const std::string given = line.substr(first + 1, second - first - 1),
                      suggested = line.substr(third + 1, line.find(',', third + 1) - third - 1);
    EXPECT_NE(given, suggested) << line;
    EXPECT_EQ(given, std::to_string(10 * given_[index].item<int64_t>())) << line;
  }
  EXPECT_GT(f1_score(flagged, wrong_), 0.85);
  EXPECT_THAT(read_text(folder_ / "run/noise_matrix.csv"), HasSubstr("true_label,0,10,20\n0,"));
}

TEST_F(TableJobs, CleanWorksWithoutTrustedRowsAndWarns) {
  const Output output = run_program("clean --json --train '" + noisy_ + "' --test '" + test_ + "' --out '" +
                                    folder_ / "run" + "'");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("there are no trusted rows"));
  EXPECT_TRUE(output.json().at("valid_accuracy").is_null());
  EXPECT_THAT(refusal("clean --iterations 3 --train '" + noisy_ + "'"), HasSubstr("--valid is missing"));
}

TEST_F(TableJobs, OptionsThatTheWayWouldIgnoreAreRefused) {
  EXPECT_THAT(refusal(tuned() + "--by held-out --inner-steps 3"),
              HasSubstr("--by held-out does not use --inner-steps"));
  EXPECT_THAT(refusal(tuned() + "--folds 3 --algorithm aid-cg"),
              HasSubstr("--folds needs --by held-out, but --algorithm needs --by algorithm"));
  EXPECT_THAT(refusal(tuned() + "--folds 3 --valid '" + valid_ + "'"), HasSubstr("--folds 3 with --valid"));
  EXPECT_THAT(refusal(tuned() + "--folds 151"), HasSubstr("--folds 151: must be at most 150"));
  EXPECT_THAT(refusal("tune --data newsgroups --by held-out"),
              HasSubstr("--by held-out with --data newsgroups"));
  EXPECT_THAT(refusal(cleaned() + "--by noise-model --threshold -2"),
              HasSubstr("--by noise-model does not use --threshold"));
  EXPECT_THAT(refusal(cleaned() + "--by noise-model --device cuda"),
              HasSubstr("--by noise-model runs on the CPU"));
  EXPECT_THAT(refusal(cleaned() + "--no-standardize --by weights"),
              HasSubstr("--no-standardize needs --by noise-model"));
}

// Two minutes of a clock that counts milliseconds since 1970: less than what a float tells apart there.
TEST_F(TableJobs, TablesAreReadInDoublePrecision) {
  Random random(3);
  const Tensor seconds = 120 * random.uniform({100}, at::TensorOptions().dtype(at::kDouble));
  const Tensor labels = seconds.gt(60).to(at::kLong);
  const std::string times = folder_ / "times.csv";
  write_table(times, (1.7e12 + 1000 * seconds).round().unsqueeze(1), labels);
  const json tuned = run("tune --train '" + times + "' --out '" + folder_ / "tuned" + "'");
  EXPECT_GT(tuned.at("valid_accuracy").get<double>(), 90);
  const json cleaned =
      run("clean --train '" + times + "' --test '" + times + "' --out '" + folder_ / "cleaned" + "'");
  EXPECT_GT(cleaned.at("test_accuracy").get<double>(), 90);
  const json asked = run("tune --train '" + times + "' --dtype float --out '" + folder_ / "float" + "'");
  EXPECT_LT(asked.at("valid_accuracy").get<double>(), 80);
}

TEST_F(TableJobs, OneColumnAndAHandfulOfRowsAreTables) {
  const std::string narrow = folder_ / "narrow.csv", few = folder_ / "few.csv";
  const Tensor labels = at::tensor({0, 1, 0, 1, 1, 0, 0, 1}, at::kLong);
  write_table(narrow, (labels.to(at::kDouble) + at::arange(8) * 0.2).unsqueeze(1), labels);
  const std::string tune = "tune --train '" + narrow + "' --folds 2 --out '" + folder_ / "narrow";
  EXPECT_THAT(run_program(tune + "'").out, HasSubstr("There is one feature, and so one regulariser."));
  EXPECT_TRUE(run(tune + "-json'").at("gain").is_null());
  const Tensor some = at::arange(12, at::kDouble).view({3, 4}).sin();
  write_table(few, some, at::tensor({0, 1, 2}, at::kLong));
  const json report =
      run("tune --train '" + few + "' --valid '" + valid_ + "' --out '" + folder_ / "few" + "'");
  EXPECT_EQ(report.at("train_examples"), 3);
  EXPECT_EQ(report.at("counts").at("unconverged_fits"), 0);
}

TEST_F(TableJobs, ARunHasNoPointToDiagnose) {
  run(tuned() + "--out '" + folder_ / "run" + "'");
  const Output output = run_program("diagnose --at '" + folder_ / "run" + "'");
  EXPECT_NE(output.exit_code, 0);
  EXPECT_THAT(output.err, HasSubstr("keeps no point to diagnose"));
  run(cleaned() + "--out '" + folder_ / "cleaned" + "'");
  EXPECT_THAT(run_program("diagnose --at '" + folder_ / "cleaned" + "'").err,
              HasSubstr("clean --by noise-model` solves its problems to the end"));
  EXPECT_EQ(run_program("report '" + folder_ / "run" + "'").exit_code, 0);
}

}  // namespace
}  // namespace bilevel::test
