// Parts of a user's own through the doors of check, diagnose and compare: an estimator, an algorithm and a
// problem that no registry knows.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bilevel/algorithms/double_loop.h"
#include "bilevel/check/check.h"
#include "bilevel/check/compare.h"
#include "bilevel/check/diagnose.h"
#include "bilevel/core/problem.h"
#include "bilevel/hypergradients/cg.h"
#include "bilevel/hypergradients/implicit.h"
#include "bilevel/hypergradients/neumann.h"
#include "bilevel/hypergradients/reverse.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// g = (w - x)' A (w - x) / 2, f = |w - 1|^2 / 2: the hypergradient at the solved inner problem is x - 1.
class Bowl : public Problem {
 public:
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch&) const override {
    return 0.5 * ((w - x) * curvatures * (w - x)).sum();
  }
  Tensor outer_loss(const Tensor& w, const Tensor&, const Batch&) const override {
    return 0.5 * (w - 1).pow(2).sum();
  }
  Tensor initial_inner(uint64_t) const override { return at::zeros_like(curvatures); }
  Tensor initial_outer(uint64_t) const override { return at::full_like(curvatures, 3); }

  Tensor curvatures = vec({0.5, 1, 2, 4});
};

// The exact inverse of that problem, written down: one cross product, no Hessian product.
class KnownInverse : public HypergradientEstimator {
 public:
  explicit KnownInverse(double scale = 1) : scale_(scale) {}
  std::string_view name() const override { return "known-inverse"; }
  bool implicit() const override { return true; }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override {
    return implicit_hypergradient(oracle, request, {}, [&](CurvatureProducts&, const Tensor& p) {
      LinearResult result;
      result.solution = scale_ * p / Bowl().curvatures;
      result.status = Status::ok;
      return result;
    });
  }
  double scale_;
};

// Back-propagation through the steps, and then half of what comes through w.
class HalfReverse : public HypergradientEstimator {
 public:
  std::string_view name() const override { return "half-reverse"; }
  bool implicit() const override { return false; }
  std::vector<int64_t> keeps(int64_t steps, int64_t bytes) const override {
    return Reverse().keeps(steps, bytes);
  }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override {
    Hypergradient half = Reverse().estimate(oracle, request);
    half.value = half.direct + 0.5 * (half.value - half.direct);
    return half;
  }
};

// Ends every solve where a curvature is not positive, whatever is solved, and may say that it needs one.
class Indefinite : public HypergradientEstimator {
 public:
  explicit Indefinite(bool needs_positive) : needs_positive_(needs_positive) {}
  std::string_view name() const override { return "indefinite"; }
  bool implicit() const override { return true; }
  bool needs_positive_curvature() const override { return needs_positive_; }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override {
    return implicit_hypergradient(oracle, request, {}, [](CurvatureProducts&, const Tensor& p) {
      LinearResult result;
      result.solution = p / Bowl().curvatures;
      result.status = Status::negative_curvature;
      return result;
    });
  }
  bool needs_positive_;
};

// Neumann's series under another name, with all that is known of it.
class OwnSeries : public HypergradientEstimator {
 public:
  OwnSeries(int64_t terms, double rate) : series_({.terms = terms, .rate = rate, .curvature = {}}) {}
  std::string_view name() const override { return "own-series"; }
  bool implicit() const override { return true; }
  std::optional<int64_t> terms() const override { return series_.terms(); }
  EstimatorTraits traits() const override { return series_.traits(); }

 private:
  Hypergradient compute(Oracle& oracle, const HypergradientRequest& request) const override {
    return series_.estimate(oracle, request);
  }
  NeumannEstimator series_;
};

// Plain steps of x along df/dx at the exact w*(x) = x, which on the bowl is the hypergradient's own part.
class Follower : public Algorithm {
 public:
  explicit Follower(const OuterOptions& outer_options) : Algorithm(outer_options) {}
  std::string_view name() const override { return "follower"; }

 private:
  IterationSummary advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const override {
    state.inner.w = state.x;
    const OuterGradients f = oracle.outer_gradients(state.inner.w, state.x, streams.outer("loss"));
    state.x = outer().step(state.x, f.w, state.outer);
    return {.direction = f.w, .outer_loss = f.loss, .status = Status::ok};
  }
};

const MethodRow& row(const CheckResult& found, std::string_view name) {
  return *std::find_if(found.methods.begin(), found.methods.end(),
                       [&](const MethodRow& m) { return m.name == name; });
}

CheckOptions two_hundred_steps() {
  CheckOptions options;
  options.inner = {.steps = 200, .rate = 0.2};
  return options;
}

TEST(OwnEstimator, has_a_row_of_check_beside_the_built_in_ones) {
  CheckOptions options = two_hundred_steps();
  options.own = {std::make_shared<KnownInverse>(), std::make_shared<HalfReverse>()};
  const CheckResult found = check_problem(Bowl(), options);
  EXPECT_EQ(found.problem, "own problem");
  ASSERT_EQ(found.methods.size(), estimator_rows().size() + 2);

  const MethodRow& inverse = row(found, "known-inverse");
  EXPECT_TRUE(inverse.own && inverse.implicit && inverse.trusted);
  EXPECT_LT(inverse.error_implicit, 1e-9);
  EXPECT_EQ(inverse.hypergradient.counts.hessian, 0);
  EXPECT_EQ(inverse.hypergradient.counts.cross, 1);
  EXPECT_EQ(inverse.why, "agrees with the implicit hypergradient");
  EXPECT_THAT(found.verdict[0], HasSubstr("known-inverse"));
  EXPECT_EQ(found.verdict[1], "The cheapest of them is known-inverse: 0 Hessian and 1 cross products.");

  const MethodRow& half = row(found, "half-reverse");
  EXPECT_FALSE(half.implicit || half.trusted);
  EXPECT_NEAR(half.error_unrolled, 0.5, 1e-9);
  EXPECT_EQ(half.why, "off by 0.5 from the derivative of the T = 200 steps taken");
  EXPECT_FALSE(row(found, "cg").own);
}

TEST(OwnEstimator, that_is_wrong_is_told_by_how_much) {
  CheckOptions options = two_hundred_steps();
  options.methods = {"exact"};
  options.own = {std::make_shared<KnownInverse>(0.75)};
  const MethodRow off = row(check_problem(Bowl(), options), "known-inverse");
  EXPECT_NEAR(off.error_implicit, 0.25, 1e-9);
  EXPECT_EQ(off.why, "off by 0.25 from the implicit hypergradient, with status ok");
}

TEST(OwnEstimator, of_the_library_brings_its_own_options_and_needs_its_own_name) {
  CheckOptions options = two_hundred_steps();
  options.methods = {"exact"};
  options.own = {std::make_shared<ConjugateGradientEstimator>(KrylovOptions{.steps = 2, .curvature = {}})};
  const MethodRow cg = row(check_problem(Bowl(), options), "cg");
  EXPECT_EQ(cg.terms, 2);
  EXPECT_EQ(cg.hypergradient.iterations, 2);
  options.methods = {"cg"};
  EXPECT_THAT(message([&] { check_problem(Bowl(), options); }),
              AllOf(HasSubstr("'cg'"), HasSubstr("the name of another row")));
  options.own = {nullptr};
  EXPECT_THAT(message([&] { check_problem(Bowl(), options); }), HasSubstr("an estimator is null"));
}

// What a verdict says of a series it says of one's own, too, at its own rate: 2/L is 0.5 on the bowl.
TEST(OwnEstimator, that_says_it_is_a_series_is_explained_as_one) {
  CheckOptions options = two_hundred_steps();
  options.methods = {"exact"};
  options.own = {std::make_shared<OwnSeries>(3, 0.2)};
  EXPECT_THAT(row(check_problem(Bowl(), options), "own-series").why,
              HasSubstr("the series is too short at K = 3; about K = 132 would do (0.9 per term)"));
  options.own = {std::make_shared<OwnSeries>(3, 0.6)};
  EXPECT_EQ(row(check_problem(Bowl(), options), "own-series").why,
            "rate 0.6 is too large for the spectrum: a series needs less than 0.5");
}

TEST(OwnEstimator, is_diagnosed_and_may_be_recommended) {
  const Bowl bowl;
  DiagnoseOptions options;
  options.own = {std::make_shared<KnownInverse>(), std::make_shared<HalfReverse>()};
  const Diagnosis d = diagnose({.problem = &bowl, .name = "bowl", .convex = true}, options);
  ASSERT_EQ(d.methods.size(), estimator_rows().size() + 2);
  const MethodDiagnosis& inverse = d.methods[d.methods.size() - 2];
  EXPECT_EQ(inverse.name, "known-inverse");
  EXPECT_TRUE(inverse.reaches && inverse.usable);
  EXPECT_LE(inverse.error, options.accuracy);
  EXPECT_LE(inverse.another_error, options.accuracy);
  EXPECT_EQ(inverse.counts.hessian, 0);
  const MethodDiagnosis& half = d.methods.back();
  EXPECT_NEAR(half.error, 0.5, 0.01);
  EXPECT_EQ(half.note, "no K that was tried reaches the accuracy");
  EXPECT_EQ(d.recommendation.method, "known-inverse");
  EXPECT_THAT(d.recommendation.sentence, HasSubstr("Take known-inverse after T = "));
}

TEST(OwnEstimator, runs_in_a_double_loop) {
  const Bowl bowl;
  const DoubleLoop loop({.inner = {.steps = 20, .rate = 0.2}, .outer = {.rate = 0.5}},
                        std::make_unique<KnownInverse>());
  const SolveSummary summary = solve(bowl, loop, {.iterations = 60});
  EXPECT_LT(length(summary.state.x - 1), 1e-6);
}

TEST(OwnEstimator, that_needs_positive_curvature_ends_a_run_without_it) {
  const Bowl bowl;
  const DoubleLoopOptions options{.inner = {.steps = 20, .rate = 0.2}, .outer = {.rate = 0.5}};
  const DoubleLoop needs_it(options, std::make_unique<Indefinite>(true));
  const SolveSummary failed = solve(bowl, needs_it, {.iterations = 60});
  EXPECT_EQ(failed.reason, StopReason::failed);
  EXPECT_LT(failed.state.iteration, 60);
  EXPECT_THAT(failed.message, HasSubstr("linear solves failed"));
  const DoubleLoop does_not(options, std::make_unique<Indefinite>(false));
  const SolveSummary done = solve(bowl, does_not, {.iterations = 60});
  EXPECT_EQ(done.reason, StopReason::iterations);
  EXPECT_EQ(done.statuses.at("negative_curvature"), 60);
}

CompareOptions on_bowl() {
  CompareOptions options;
  options.algorithms = {"aid-cg"};
  options.seeds = {0, 1};
  options.settings.inner = {.steps = 10, .rate = 0.2};
  options.settings.outer.rate = 0.1;
  options.search.outer_rates = {0.01, 0.5};
  options.search.inner_factors = {1};
  options.solve.iterations = 30;
  options.solve.records = 4;
  options.stochastic_batches = {};
  return options;
}

MakeAlgorithm make_follower() {
  return [](const AlgorithmSettings& s) { return std::make_unique<Follower>(s.outer); };
}

TEST(OwnAlgorithm, takes_part_in_a_comparison_with_rates_that_are_searched) {
  CompareOptions options = on_bowl();
  options.own = {{.make = make_follower()}};
  const Comparison c = compare_algorithms(Bowl(), options);
  ASSERT_EQ(c.algorithms.size(), 2U);
  const ComparedAlgorithm& follower = c.algorithms[1];
  EXPECT_EQ(follower.name, "follower");
  EXPECT_EQ(follower.candidates, 2);
  EXPECT_EQ(follower.outer_rate, 0.5);
  ASSERT_EQ(follower.runs.size(), 2U);
  // f(x, w*(x)) = |x - 1|^2 / 2 from x = 3, which halves its distance in every step.
  EXPECT_DOUBLE_EQ(follower.runs[0].records.front().value, 8);
  EXPECT_NEAR(follower.runs[0].records.back().value, 8 * std::pow(0.25, 30), 1e-12);
}

TEST(OwnAlgorithm, that_is_made_already_is_run_as_it_is) {
  CompareOptions options = on_bowl();
  options.own = {{.as_it_is = std::make_shared<Follower>(OuterOptions{.rate = 0.25})}};
  const ComparedAlgorithm follower = compare_algorithms(Bowl(), options).algorithms[1];
  EXPECT_EQ(follower.candidates, 0);
  EXPECT_EQ(follower.outer_rate, 0);
  EXPECT_NEAR(follower.runs[0].records.back().value, 8 * std::pow(0.75, 60), 1e-12);

  options.solve.on_failure = OnFailure::backtrack;
  options.solve.settings = options.settings;
  EXPECT_THAT(message([&] { compare_algorithms(Bowl(), options); }),
              AllOf(HasSubstr("on_failure = backtrack"), HasSubstr("'follower'")));
  options.own = {{}};
  EXPECT_THAT(message([&] { compare_algorithms(Bowl(), options); }), HasSubstr("`make` or `as_it_is`"));
  options.own = {{.make = make_follower()}, {.make = make_follower()}};
  EXPECT_THAT(message([&] { compare_algorithms(Bowl(), options); }),
              HasSubstr("algorithm follower is listed twice"));
}

// An outer rate above 2 diverges on the bowl; each repair makes the algorithm again at a lower one.
TEST(OwnAlgorithm, is_repaired_by_its_own_make) {
  SolveOptions options{.iterations = 400};
  AlgorithmSettings settings;
  settings.inner = {.steps = 1, .rate = 0.2};
  settings.outer.rate = 1e6;
  options.settings = settings;
  options.on_failure = OnFailure::backtrack;
  const Follower follower(settings.outer);
  EXPECT_THAT(message([&] { solve(Bowl(), follower, options); }),
              AllOf(HasSubstr("on_failure = backtrack needs `make`"), HasSubstr("'follower'")));
  options.make = make_follower();
  const SolveSummary summary = solve(Bowl(), follower, options);
  EXPECT_FALSE(summary.failures.empty());
  EXPECT_LT(length(summary.state.x - 1), 1e-6) << summary.message;
}

}  // namespace
}  // namespace bilevel::test
