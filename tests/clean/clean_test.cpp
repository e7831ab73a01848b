// Cleaning as a job: known noise on separable clouds is found, by any algorithm, and what is reported agrees
// with what was computed.
#include "bilevel/clean/clean.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bilevel/core/errors.h"
#include "bilevel/core/oracle.h"
#include "bilevel/problems/hyper_cleaning.h"
#include "bilevel/problems/softmax_loss.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

at::TensorOptions doubles() { return at::TensorOptions().dtype(at::kDouble); }

CleaningSets clouds(double noise) {
  SyntheticCleaningOptions options;
  options.data = {.classes = 3, .features = 6, .separation = 1.5};
  options.samples = 150;
  options.valid_samples = 90;
  options.label_noise = noise;
  const CleaningData data = draw_cleaning_data(options, 5).with_bias();
  CleaningSets sets;
  sets.train.features.dense = data.train.features;
  sets.train.labels = data.train.labels;
  sets.valid.features.dense = data.valid.features;
  sets.valid.labels = data.valid.labels;
  sets.test.features.dense = data.valid.features.slice(0, 0, 30);
  sets.test.labels = data.valid.labels.slice(0, 0, 30);
  sets.classes = 3;
  sets.replaced = data.replaced;
  sets.wrong = data.wrong;
  return sets;
}

CleanOptions options_for(const CleaningModel& model) {
  CleanOptions options = default_clean_options(model);
  options.settings.inner.rate = 1 / start_curvature(*model.problem, 0);
  return options;
}

TEST(Clean, FindsTheWrongLabelsAndGainsByIt) {
  const CleaningSets sets = clouds(0.4);
  const CleaningModel model = make_linear_cleaning(sets, 0.001, doubles());
  const CleanResult found = clean(sets, model, options_for(model));
  ASSERT_TRUE(found.wrong && found.replaced);
  EXPECT_GT(found.wrong->f1(), 0.85);
  EXPECT_EQ(found.wrong->bad, sets.wrong.sum().item<int64_t>());
  EXPECT_LT(found.cleaned.valid_loss, found.baseline.valid_loss);
  EXPECT_LT(found.inner_gradient_norm, 0.1 * found.first_gradient_norm);
  EXPECT_TRUE(found.warnings.empty()) << found.warnings.front();

  // The list is what is below the threshold, lowest first.
  const Tensor flagged = found.x.lt(-3);
  ASSERT_EQ(static_cast<int64_t>(found.suspects.size()), flagged.sum().item<int64_t>());
  double last = -INFINITY;
  for (const int64_t i : found.suspects) {
    EXPECT_GE(found.x[i].item<double>(), last);
    last = found.x[i].item<double>();
  }
  EXPECT_LT(last, -3);
  EXPECT_TRUE(found.weights.allclose(found.x.sigmoid()));
  // The suggested label is the final model's, and the final model solves its problem.
  const Tensor scores = sets.train.features.dense.mm(found.cleaned.w.view({3, 7}).t());
  EXPECT_TRUE(found.suggested.equal(scores.argmax(1)));
  EXPECT_EQ(found.counts.hessian, 100 * 4);
  EXPECT_EQ(found.counts.cross, 100 * 5);
}

TEST(Clean, TheFinalModelAndTheBaselineSolveTheirProblems) {
  const CleaningSets sets = clouds(0.4);
  const CleaningModel model = make_linear_cleaning(sets, 0.01, doubles());
  CleanOptions options = options_for(model);
  options.solve.iterations = 5;
  options.final_steps = 20000;
  options.final_tolerance = 1e-9;
  const CleanResult found = clean(sets, model, options);
  // The baseline is plain training on the labels as given: weights of one.
  const Tensor w = found.baseline.w.view({3, 7});
  const Tensor errors =
      at::softmax(sets.train.features.dense.mm(w.t()), 1) - at::one_hot(sets.train.labels, 3);
  const Tensor gradient = errors.t().mm(sets.train.features.dense) / 150 + 0.02 * w;
  EXPECT_LT(gradient.norm().item<double>(), 1e-8);
  EXPECT_NEAR(found.baseline.test_accuracy,
              accuracy_percent(sets.test.features.dense.mm(w.t()), sets.test.labels), 1e-12);
  Oracle oracle(*model.problem);
  EXPECT_LT(oracle.inner_gradient(found.cleaned.w, found.x, {}).norm().item<double>(), 1e-8);
}

TEST(Clean, EveryKindOfAlgorithmAndBothClosedFormsAgreeOnTheSuspects) {
  const CleaningSets sets = clouds(0.4);
  CleaningModel model = make_linear_cleaning(sets, 0.001, doubles());
  for (const char* algorithm : {"krmd", "reverse", "aid-cg", "idarts", "soba"}) {
    SCOPED_TRACE(algorithm);
    CleanOptions options = options_for(model);
    options.algorithm = algorithm;
    if (options.algorithm == "soba") options.solve.iterations = 1000;
    EXPECT_GT(clean(sets, model, options).wrong->f1(), 0.8);
  }
  CleanOptions options = options_for(model);
  options.solve.iterations = 3;
  const CleanResult closed = clean(sets, model, options);
  model.problem = std::make_unique<HyperCleaning>(sets.data(), 0.001, doubles());
  EXPECT_LT((clean(sets, model, options).x - closed.x).norm().item<double>(), 1e-9);
}

// No label is wrong, and a search that cannot move leaves all weights at sigmoid(0): less data for the same
// regulariser.
TEST(Clean, ABaselineThatIsBetterIsReturned) {
  const CleaningSets sets = clouds(0);
  const CleaningModel model = make_linear_cleaning(sets, 0.01, doubles());
  CleanOptions options = options_for(model);
  options.solve.iterations = 2;
  options.settings.outer.rate = 1e-9;
  options.threshold = 1;  // which would flag everything
  const CleanResult found = clean(sets, model, options);
  ASSERT_TRUE(found.finished);
  EXPECT_TRUE(found.kept_baseline);
  EXPECT_GT(found.learned_valid_loss, found.baseline.valid_loss);
  EXPECT_EQ(found.cleaned.valid_loss, found.baseline.valid_loss);
  EXPECT_TRUE(found.cleaned.w.equal(found.baseline.w));
  EXPECT_GT(found.weights.min().item<double>(), 1 - 1e-12);
  EXPECT_TRUE(found.suspects.empty());
  EXPECT_THAT(found.warnings, Contains(HasSubstr("do not beat all labels alike")));
}

// A rate that overshoots after a good start: the weights of the good start are returned.
TEST(Clean, TheBestWeightsAlongTheRunAreReturned) {
  const CleaningSets sets = clouds(0.4);
  const CleaningModel model = make_linear_cleaning(sets, 0.001, doubles());
  CleanOptions options = options_for(model);
  options.settings.outer.rate = 1;
  options.solve.iterations = 30;
  options.solve.records = 30;
  const CleanResult found = clean(sets, model, options);
  ASSERT_TRUE(found.finished) << found.solve.message;
  EXPECT_LT(found.best_iteration, 30);
  EXPECT_FALSE(found.weights.equal(found.solve.state.x.sigmoid()));  // those of the last iteration
  EXPECT_LT(found.cleaned.valid_loss, found.baseline.valid_loss);
  EXPECT_FALSE(found.kept_baseline);
}

TEST(Clean, CurvatureAtTheStartIsTheHessiansLargestEigenvalue) {
  const CleaningSets sets = clouds(0.2);
  const CleaningModel model = make_linear_cleaning(sets, 0.001, doubles());
  // At W = 0 every probability is 1/3: H = (diag(p) - pp') x X'X / N + 0.002, the first factor's largest 1/3.
  const Tensor gram = sets.train.features.dense.t().mm(sets.train.features.dense) / 150;
  const double largest = std::get<0>(at::linalg_eigh(gram))[-1].item<double>();
  EXPECT_NEAR(start_curvature(*model.problem, 0), largest / 3 + 0.002, 1e-3 * largest);
}

TEST(Clean, WarnsWhereTheAnswerCannotBeTrusted) {
  const CleaningSets sets = clouds(0.4);
  const CleaningModel model = make_linear_cleaning(sets, 0.001, doubles());
  CleanOptions options = options_for(model);
  options.solve.iterations = 3;
  options.settings.inner.steps = 1;
  CleanResult found = clean(sets, model, options);
  EXPECT_THAT(found.warnings, Contains(HasSubstr("far from solved")));
  EXPECT_THAT(found.warnings, Contains(HasSubstr("no example is below the threshold of -3")));
  options.threshold = 5;
  options.most_suspects = 4;
  found = clean(sets, model, options);
  EXPECT_THAT(found.warnings, Contains(HasSubstr("more than half")));
  EXPECT_EQ(found.suspects.size(), 4U);
  EXPECT_EQ(found.flagged, 150);
}

TEST(Clean, RefusesWhatMakesNoSense) {
  const CleaningSets sets = clouds(0.4);
  const CleaningModel model = make_linear_cleaning(sets, 0.001, doubles());
  const auto refusal = [&](auto change) {
    CleanOptions options = options_for(model);
    change(options);
    return message<std::invalid_argument>([&] { clean(sets, model, options); });
  };
  EXPECT_THAT(refusal([](CleanOptions& o) { o.most_suspects = 151; }), HasSubstr("suspects = 151"));
  EXPECT_THAT(refusal([](CleanOptions& o) { o.threshold = NAN; }), HasSubstr("threshold = nan"));
  EXPECT_THAT(refusal([](CleanOptions& o) { o.final_steps = -1; }), HasSubstr("final_steps = -1"));
  EXPECT_THAT(refusal([](CleanOptions& o) { o.algorithm = "magic"; }), HasSubstr("magic"));
  CleanOptions options = options_for(model);
  options.settings.inner.rate = 1e200;
  const CleanResult failed = clean(sets, model, options);
  EXPECT_FALSE(failed.finished);
  EXPECT_TRUE(ended_badly(failed.solve.reason));
  EXPECT_THAT(failed.solve.message, HasSubstr("1e+200"));
}

TEST(Clean, DetectionCountsByHand) {
  const auto bools = [](std::vector<int64_t> values) { return at::tensor(values).to(at::kBool); };
  const Detection found = detect(bools({1, 1, 1, 0, 0}), bools({1, 0, 1, 1, 1}));
  EXPECT_DOUBLE_EQ(found.precision(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(found.recall(), 0.5);
  EXPECT_DOUBLE_EQ(found.f1(), 4.0 / 7);
  const Detection none = detect(bools({0, 0}), bools({0, 0}));
  EXPECT_EQ(none.precision() + none.recall() + none.f1(), 0);
}

}  // namespace
}  // namespace bilevel::test
