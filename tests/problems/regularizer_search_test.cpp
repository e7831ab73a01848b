// The search for regularisers: the curvature that its rate comes from, the limit that keeps the rate safe,
// its scores, and the papers' halves of 20 Newsgroups.

#include "bilevel/problems/regularizer_search.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "bilevel/core/oracle.h"
#include "bilevel/core/random.h"
#include "bilevel/core/spectrum.h"
#include "bilevel/core/trajectory.h"
#include "bilevel/data/xz.h"
#include "tests/data/files.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;

RegularizerSets small_sets(int64_t classes) {
  Random random(4);
  const auto rows = [&](int64_t count) -> LabelledRows {
    return {FeatureMatrix::from_dense(random.normal({count, 12}, at::kDouble)),
            at::arange(count, at::kLong).remainder(classes)};
  };
  RegularizerSets sets;
  sets.train = rows(40);
  sets.valid = rows(30);
  sets.test = rows(20);
  sets.classes = classes;
  for (int j = 0; j < 12; ++j) sets.feature_names.push_back("f" + std::to_string(j));
  return sets;
}

TEST(RegularizerSearch, CurvatureIsTheLargestEigenvalueOfTheDataAtZero) {
  for (const int64_t classes : {2, 5}) {
    const RegularizerSearch problem(small_sets(classes));
    const Tensor x = problem.initial_outer(0), w = problem.initial_inner(0);
    const auto at_zero = problem.linearize(w, x, {});
    const Spectrum spectrum =
        extreme_eigenvalues([&](const Tensor& v) { return at_zero->hessian(v); }, w.numel(), w.options());
    const double ridge = 2 / static_cast<double>(w.numel());
    // Power iterations approach it from below.
    EXPECT_NEAR(problem.curvature() + ridge, spectrum.largest, 0.02 * spectrum.largest) << classes;
    EXPECT_LE(problem.curvature() + ridge, spectrum.largest * (1 + 1e-12)) << classes;
  }
}

TEST(RegularizerSearch, TheInnerLoopIsStableAtTheLimitAndNotFarBeyond) {
  const RegularizerSearch problem(small_sets(3));
  EXPECT_GE(problem.largest_outer(), std::log(10) - 1e-12);
  Tensor x = at::full({12}, 100.0, at::kDouble);
  problem.project_outer_(x);
  EXPECT_TRUE(at::equal(x, at::full({12}, problem.largest_outer(), at::kDouble)));
  Tensor below = at::full({12}, -100.0, at::kDouble);
  problem.project_outer_(below);
  EXPECT_EQ(below[0].item<double>(), -100);

  Oracle oracle(problem);
  InnerLoop run;
  run.options.steps = 200;
  run.options.rate = problem.rate();
  Random random(1);
  const Tensor start = random.normal({36}, at::kDouble);
  EXPECT_LT(run_inner(oracle, x, start, run).gradient_norm, 1e-6);
  EXPECT_GT(run_inner(oracle, x + 0.5, start, run).gradient_norm, 1);
}

TEST(RegularizerSearch, ScoresAreThoseOfTheLossesOnAllThreeSets) {
  const RegularizerSearch problem(small_sets(3));
  Random random(2);
  const Tensor w = random.normal({36}, at::kDouble), x = problem.initial_outer(0);
  const auto scores = problem.metrics(w, x);
  EXPECT_NEAR(scores.at("valid_loss"), problem.outer_loss(w, x, {}).item<double>(), 1e-12);
  const double ridge = w.square().sum().item<double>() / 36;
  EXPECT_NEAR(scores.at("train_loss"), problem.inner_loss(w, x, {}).item<double>() - ridge, 1e-12);
  EXPECT_NEAR(scores.at("valid_accuracy"), accuracy_percent(problem.valid(), problem.layout().matrix(w)),
              1e-10);
  EXPECT_EQ(scores.count("test_accuracy"), 1);

  RegularizerSets without = small_sets(3);
  without.test.reset();
  EXPECT_EQ(RegularizerSearch(without).metrics(w, x).count("test_accuracy"), 0);
}

TEST(RegularizerSearch, BadRatesAndPartsAreNamed) {
  EXPECT_THAT(message([] { RegularizerSearch(small_sets(2), -1); }), HasSubstr("inner_rate = -1: must be"));
  EXPECT_THAT(message([] { read_newsgroup_sets("/nowhere", {}, 1.0); }), HasSubstr("valid_part = 1"));
  EXPECT_THAT(message([] { read_regularizer_sets({}); }), HasSubstr("training examples"));
}

TEST(RegularizerSets, NewsgroupsAreTheHalvesOfThePapers) {
  const std::string path = shared_data("20news-bydate.tar.xz");
  if (path.empty()) GTEST_SKIP() << "SKIPPED: ../shared/data/20news-bydate.tar.xz is missing";
  if (!has_xz()) GTEST_SKIP() << "SKIPPED: built without liblzma";
  const RegularizerSets sets = read_newsgroup_sets(path);
  EXPECT_EQ(sets.train.size(), 5657);
  EXPECT_EQ(sets.valid.size(), 5657);
  EXPECT_EQ(sets.test->size(), 7532);
  EXPECT_EQ(sets.train.features.features(), 101631);
  EXPECT_EQ(sets.nonzeros, 1103627);
  EXPECT_EQ(sets.train.features.stored() + sets.valid.features.stored(), sets.nonzeros);
  EXPECT_EQ(sets.classes, 20);
  EXPECT_EQ(sets.feature_names.size(), 101631U);
}

}  // namespace
}  // namespace bilevel::test
