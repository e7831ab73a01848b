// Hyper-cleaning on a user's own .npy files: the good ones give the same numbers as the data in memory, and
// every bad one is named with what was expected and what was found.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "bilevel/data/npy.h"
#include "bilevel/problems/hyper_cleaning.h"
#include "bilevel/problems/registry.h"
#include "tests/problems/problem_checks.h"

namespace bilevel::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CleaningFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::path(::testing::TempDir()) /
             (std::string("bilevel_cleaning_") +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    const LabelledExamples train = draw_gaussian_classes({.classes = 3, .features = 4}, 12, 1, "train");
    const LabelledExamples valid = draw_gaussian_classes({.classes = 3, .features = 4}, 9, 1, "valid");
    train_features = train.features;
    train_labels = train.labels;
    valid_features = valid.features;
    valid_labels = valid.labels;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string& name) const { return (folder / name).string(); }
  ProblemOptions write() const {
    write_npy(path("X.npy"), train_features);
    write_npy(path("y.npy"), train_labels);
    write_npy(path("Xv.npy"), valid_features);
    write_npy(path("yv.npy"), valid_labels);
    ProblemOptions options;
    options.train_features = path("X.npy");
    options.train_labels = path("y.npy");
    options.valid_features = path("Xv.npy");
    options.valid_labels = path("yv.npy");
    return options;
  }
  // The files are refused with the name of the one at fault and these words.
  void expect_refused(const std::string& file, const std::string& expected, const std::string& found) const {
    const ProblemOptions options = write();
    EXPECT_THAT([&] { make_problem("hyper-cleaning", options); },
                ThrowsMessage<std::runtime_error>(AllOf(HasSubstr("/" + file + ":"),
                                                        HasSubstr("expected " + expected),
                                                        HasSubstr("found " + found), HasSubstr("; "))));
  }

  std::filesystem::path folder;
  Tensor train_features, train_labels, valid_features, valid_labels;
};

TEST_F(CleaningFilesTest, GiveTheSameLossesAsTheDataInMemory) {
  CleaningData data;
  data.classes = 3;
  data.train = {train_features, train_labels};
  data.valid = {valid_features, valid_labels};
  const HyperCleaning memory(data, 0.001, doubles());
  const NamedProblem files = make_problem("hyper-cleaning", write());
  EXPECT_EQ(files.inner_steps, 100);
  EXPECT_TRUE(files.convex);
  EXPECT_NEAR(files.inner_rate, 1 / memory.smoothness_bound(), 1e-15);
  const Point point = generic_point(memory);
  EXPECT_TRUE(
      at::equal(files.problem->inner_loss(point.w, point.x, {}), memory.inner_loss(point.w, point.x, {})));
  EXPECT_TRUE(
      at::equal(files.problem->outer_loss(point.w, point.x, {}), memory.outer_loss(point.w, point.x, {})));
  EXPECT_TRUE(at::equal(files.problem->initial_inner(0), at::zeros({12}, doubles())));
  EXPECT_TRUE(at::equal(files.problem->initial_outer(0), at::zeros({12}, doubles())));
}

TEST_F(CleaningFilesTest, TakeRegularizationAndBias) {
  ProblemOptions options = write();
  options.regularization = 0.5;
  options.bias = true;
  const NamedProblem named = make_problem("hyper-cleaning", options);
  const Tensor ones = at::ones({15}, doubles());  // all classes alike: the cross entropy is log 3
  EXPECT_NEAR(value(named.problem->inner_loss(ones, at::zeros({12}, doubles()), {})),
              0.5 * std::log(3.0) + 0.5 * 15, 1e-13);
}

TEST_F(CleaningFilesTest, MayBeFloatsAndSmallIntegers) {
  const NamedProblem reference = make_problem("hyper-cleaning", write());
  train_features = train_features.to(at::kFloat);
  valid_features = valid_features.to(at::kFloat);
  train_labels = train_labels.to(at::kByte);
  valid_labels = valid_labels.to(at::kInt);
  const NamedProblem narrow = make_problem("hyper-cleaning", write());
  const Point point = generic_point(*reference.problem);
  EXPECT_LT(relative_error(narrow.problem->inner_loss(point.w, point.x, {}),
                           reference.problem->inner_loss(point.w, point.x, {})),
            1e-6);
}

TEST_F(CleaningFilesTest, AClassMayBeMissingFromTheValidationSet) {
  valid_labels = at::ones({9}, at::kLong);
  EXPECT_NO_THROW(make_problem("hyper-cleaning", write()));
}

TEST_F(CleaningFilesTest, TheDefaultRateDescendsOnFeaturesOfAnyScale) {
  for (const double scale : {0.01, 1.0, 100.0}) {
    const Tensor kept = train_features;
    train_features = kept * scale;
    const NamedProblem named = make_problem("hyper-cleaning", write());
    train_features = kept;
    const Tensor x = named.problem->initial_outer(0);
    Tensor w = named.problem->initial_inner(0);
    double last = value(named.problem->inner_loss(w, x, {}));
    for (int64_t t = 0; t < named.inner_steps; ++t) {
      w = descend(*named.problem, w, x, 1, named.inner_rate);
      const double loss = value(named.problem->inner_loss(w, x, {}));
      ASSERT_LE(loss, last * (1 + 1e-14)) << "scale " << scale << " step " << t;
      last = loss;
    }
  }
}

TEST_F(CleaningFilesTest, AllFourAreNeeded) {
  ProblemOptions options = write();
  options.valid_labels.clear();
  EXPECT_THAT([&] { make_problem("hyper-cleaning", options); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("valid_labels is missing")));
}

TEST_F(CleaningFilesTest, AFileThatIsNotThereIsNamed) {
  ProblemOptions options = write();
  options.train_labels = path("nowhere.npy");
  EXPECT_THAT([&] { make_problem("hyper-cleaning", options); },
              ThrowsMessage<std::runtime_error>(HasSubstr("nowhere.npy")));
}

TEST_F(CleaningFilesTest, FeaturesThatAreNoMatrix) {
  train_features = train_features.view({12, 2, 2});
  expect_refused("X.npy", "a matrix of features", "shape (12, 2, 2)");
}

TEST_F(CleaningFilesTest, NoExamples) {
  train_features = train_features.slice(0, 0, 0);
  expect_refused("X.npy", "at least one example", "shape (0, 4)");
}

TEST_F(CleaningFilesTest, NoFeatures) {
  valid_features = valid_features.slice(1, 0, 0);
  expect_refused("Xv.npy", "at least one example and one feature", "shape (9, 0)");
}

TEST_F(CleaningFilesTest, FeaturesOfAnIntegerType) {
  train_features = train_features.to(at::kByte);
  expect_refused("X.npy", "features of a floating type", "Byte");
}

TEST_F(CleaningFilesTest, FeaturesThatAreNotFinite) {
  train_features[7][2] = std::nan("");
  expect_refused("X.npy", "finite features", "nan at row 7, column 2 (1 in all)");
  train_features[7][2] = 0;
  valid_features[0][3] = -INFINITY;
  valid_features[8][1] = INFINITY;
  expect_refused("Xv.npy", "finite features", "-inf at row 0, column 3 (2 in all)");
}

TEST_F(CleaningFilesTest, MoreLabelsThanExamples) {
  train_labels = at::arange(13).remainder(3);
  expect_refused("y.npy", "12 labels, one per row of", "13");
}

TEST_F(CleaningFilesTest, LabelsThatAreOneHot) {
  valid_labels = at::zeros({9, 3}, at::kLong);
  expect_refused("yv.npy", "a vector of labels", "shape (9, 3)");
}

TEST_F(CleaningFilesTest, LabelsThatAreNotIntegers) {
  train_labels = train_labels.to(at::kDouble) + 0.5;
  expect_refused("y.npy", "labels of an integer type", "Double");
}

TEST_F(CleaningFilesTest, NegativeLabels) {
  valid_labels[4] = -1;
  expect_refused("yv.npy", "labels 0, 1, 2", "the label -1");
}

TEST_F(CleaningFilesTest, AMissingClass) {
  train_labels = train_labels + 1;  // numbered from one
  expect_refused("y.npy", "every class", "no example of class 0");
}

TEST_F(CleaningFilesTest, AnAbsurdLabelTakesNoMemory) {
  train_labels[0] = int64_t{1} << 60;
  expect_refused("y.npy", "every class", "the label 1152921504606846976 among only 12 examples");
}

TEST_F(CleaningFilesTest, OnlyOneClass) {
  train_labels = at::zeros({12}, at::kLong);
  expect_refused("y.npy", "at least two classes", "only label 0");
}

TEST_F(CleaningFilesTest, ValidationWithOtherFeatures) {
  valid_features = valid_features.slice(1, 0, 3).contiguous();
  expect_refused("Xv.npy", "4 features, as in", "3");
}

TEST_F(CleaningFilesTest, ValidationWithAnUnknownClass) {
  valid_labels[2] = 3;
  expect_refused("yv.npy", "labels 0 .. 2, as in", "the label 3");
}

}  // namespace
}  // namespace bilevel::testing
