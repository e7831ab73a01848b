// What a diagnosis says against what is so: spectra that are known, the K that is really needed, and the
// error of the recommendation on every convex problem.
#include "bilevel/check/diagnose.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "bilevel/check/linear_outer.h"
#include "bilevel/check/references.h"
#include "bilevel/core/random.h"
#include "bilevel/problems/ridge.h"
#include "tests/messages.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const MethodDiagnosis& row(const Diagnosis& d, std::string_view name) {
  return *std::find_if(d.methods.begin(), d.methods.end(),
                       [&](const MethodDiagnosis& m) { return m.name == name; });
}

// g = (w - x)' A (w - x) / 2 with a diagonal A, f = |w - target|^2 / 2: dPhi/dx = w* - target = x - target.
struct Diagonal {
  explicit Diagonal(const Tensor& curvatures)
      : problem([curvatures](const Tensor& w, const Tensor& x,
                             const Batch&) { return 0.5 * ((w - x) * curvatures * (w - x)).sum(); },
                [](const Tensor& w, const Tensor&, const Batch&) { return 0.5 * (w - 1).pow(2).sum(); },
                at::zeros_like(curvatures), at::full_like(curvatures, 3)) {
    facts.problem = &problem;
    facts.name = "diagonal";
    facts.convex = true;
  }
  FunctionProblem problem;
  DiagnosedProblem facts;
};

TEST(Diagnose, AKnownSpectrum) {
  const Tensor curvatures = at::logspace(std::log10(0.5), std::log10(20.0), 100, 10.0, doubles());
  const Diagonal diagonal(curvatures);
  const Diagnosis d = diagnose(diagonal.facts, {});
  for (const InnerPoint& point : {d.start, d.end, *d.solution}) {
    EXPECT_NEAR(point.spectrum.smallest, 0.5, 1e-6);
    EXPECT_NEAR(point.spectrum.largest, 20, 1e-6);
    EXPECT_NEAR(point.spectrum.condition_number(), 40, 1e-4);
    EXPECT_NEAR(point.distance, point.gradient_norm / 0.5, 1e-6 * point.distance + 1e-12);
  }
  EXPECT_NEAR(d.start.gradient_norm, length(curvatures * 3), 1e-9);
  EXPECT_GE(d.start.distance, std::sqrt(100.0) * 3);  // it bounds |w - w*|
  EXPECT_FALSE(d.negative_curvature);
  EXPECT_EQ(d.reference, ReferenceKind::solution);
  EXPECT_TRUE(d.recommendation.reaches);
  EXPECT_LE(d.recommendation.error, 0.01);

  DiagnoseOptions plain;
  plain.inner.optimizer = "gd";
  plain.given.optimizer = true;
  const Diagnosis gd = diagnose(diagonal.facts, plain);
  EXPECT_NEAR(gd.largest_safe_rate, 2 / 20.0, 1e-6);
  EXPECT_NEAR(gd.best_rate, 2 / 20.5, 1e-6);
  EXPECT_NEAR(gd.best_contraction, 39.0 / 41, 1e-6);
  EXPECT_DOUBLE_EQ(gd.inner.rate, 0.05);
  EXPECT_NEAR(gd.contraction, 1 - 0.05 * 0.5, 1e-6);
  EXPECT_EQ(gd.steps_predicted, 182);  // ln 0.01 / ln 0.975
}

// Every number of a row is that of the estimator as a user would run it.
TEST(Diagnose, RowsSayWhatTheEstimatorsDo) {
  const NamedProblem named = make_problem("ridge");
  DiagnoseOptions options;
  options.accuracy = 1e-3;
  const Diagnosis d = diagnose(diagnosed(named), options);
  Oracle oracle(*named.problem);
  const Tensor x = named.problem->initial_outer(0), start = named.problem->initial_inner(0);
  const Tensor exact = implicit_reference(oracle, x, start).value;
  int compared = 0;
  for (const MethodDiagnosis& m : d.methods) {
    if (m.basis != Basis::measured || m.name == "reverse-binomial") continue;  // its budget is its own
    EstimatorSettings settings;
    settings.terms = settings.truncate = m.terms.value_or(0);
    InnerOptions inner = d.recommendation.inner;
    inner.steps = m.inner_steps;
    const auto run = hypergradient_at(oracle, x, start, inner, *make_estimator(m.name, settings));
    EXPECT_NEAR(relative_error(run.hypergradient.value, exact), m.error, 1e-3 * m.error + 1e-9) << m.name;
    EXPECT_EQ(run.hypergradient.bytes_kept, m.bytes) << m.name;
    const OracleCounts& counts = run.hypergradient.counts;
    EXPECT_EQ(oracle_calls(counts) + inner.steps, oracle_calls(m.counts)) << m.name;
    EXPECT_TRUE(!m.reaches || m.error <= options.accuracy) << m.name;
    ++compared;
  }
  EXPECT_GE(compared, 12);
}

// f's gradient lies along one eigenvector, where any method is right at once: K must not be taken from it.
TEST(Diagnose, TheFirstGradientDoesNotDecideAlone) {
  const Tensor curvatures = at::logspace(0, std::log10(20.0), 30, 10.0, doubles());
  const FunctionProblem problem(
      [curvatures](const Tensor& w, const Tensor& x, const Batch&) {
        return 0.5 * ((w - x) * curvatures * (w - x)).sum();
      },
      [](const Tensor& w, const Tensor&, const Batch&) { return 0.5 * (w[29] - 1).pow(2); },
      at::zeros_like(curvatures), at::full_like(curvatures, 3));
  const DiagnosedProblem facts{.problem = &problem, .name = "one direction", .convex = true, .growth = 1};
  const Diagnosis d = diagnose(facts, {});
  // CG solves for one eigenvector in one step, and needs about sqrt(20) of them a digit for a random vector.
  EXPECT_LT(row(d, "cg").error, 1e-6);
  EXPECT_GE(*row(d, "cg").terms, 8);
  EXPECT_TRUE(d.recommendation.reaches);
  EXPECT_LE(d.recommendation.another_error, 0.01);
  // What was promised for one p holds for others.
  EstimatorSettings settings;
  settings.terms = settings.truncate = d.recommendation.terms;
  const Tensor x = problem.initial_outer(0), start = problem.initial_inner(0);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    const Tensor p = Random(seed).normal({30}, doubles());
    const WithLinearOuter asked(problem, p, at::zeros_like(x));
    Oracle oracle(asked);
    const auto run = hypergradient_at(oracle, x, start, d.recommendation.inner,
                                      *make_estimator(d.recommendation.method, settings));
    EXPECT_LT(relative_error(run.hypergradient.value, p), 0.03)
        << seed;  // C = -A, so that the exact one is p
  }
}

// Products, recomputed gradients and kept states of rows that were not run to their T: those of a run.
TEST(Diagnose, WhatIsExtrapolatedIsCountedAsItWouldRun) {
  const Diagonal diagonal(at::logspace(0, 2, 12, 10.0, doubles()));
  for (const std::string optimizer : {"gd", "nesterov", "adam"}) {
    DiagnoseOptions options;
    options.calls_per_method = 60;
    options.inner.optimizer = optimizer;
    options.inner.rate = optimizer == "adam" ? 0.3 : 0.01;
    options.given = {.optimizer = true, .rate = true, .steps = optimizer == "adam"};
    options.inner.steps = 150;
    const Diagnosis d = diagnose(diagonal.facts, options);
    int compared = 0;
    for (const MethodDiagnosis& m : d.methods) {
      if ((make_estimator(m.name, {})->implicit() && m.name != "general-forward") || m.name == "truncated" ||
          m.name == "one-step" || m.name == "t1t2")
        continue;
      EstimatorSettings settings;
      InnerOptions inner = d.recommendation.inner;
      inner.steps = m.inner_steps;
      const int64_t state = 12 * 8 * (1 + make_inner_optimizer(inner)->buffer_count());
      settings.byte_budget = state * (1 + static_cast<int64_t>(std::log2(m.inner_steps + 1)));
      Oracle oracle(diagonal.problem);
      const auto run =
          hypergradient_at(oracle, diagonal.problem.initial_outer(0), diagonal.problem.initial_inner(0),
                           inner, *make_estimator(m.name, settings));
      const OracleCounts& counts = run.hypergradient.counts;
      EXPECT_EQ(counts.inner_gradient + inner.steps, m.counts.inner_gradient) << optimizer << " " << m.name;
      EXPECT_EQ(counts.outer_gradient, m.counts.outer_gradient) << optimizer << " " << m.name;
      EXPECT_EQ(counts.hessian, m.counts.hessian) << optimizer << " " << m.name;
      EXPECT_EQ(counts.cross, m.counts.cross) << optimizer << " " << m.name;
      EXPECT_EQ(counts.samples + inner.steps, m.counts.samples) << optimizer << " " << m.name;
      EXPECT_EQ(run.hypergradient.bytes_kept, m.bytes) << optimizer << " " << m.name;
      ++compared;
    }
    EXPECT_EQ(compared, 6) << optimizer;
    // Momentum is not in Lemma 2: what reverse promises says nothing about it.
    if (optimizer == "nesterov") {
      EXPECT_EQ(row(d, "reverse").basis, Basis::extrapolated);
      EXPECT_EQ(row(d, "general-backward").basis, Basis::none);
      EXPECT_FALSE(row(d, "general-backward").reaches);
    }
  }
}

// The inverse of a large problem is not free.
TEST(Diagnose, ExactIsCountedWhereItIsNotFactorised) {
  const Diagonal diagonal(at::logspace(0, 1, 1200, 10.0, doubles()));
  const Diagnosis d = diagnose(diagonal.facts, {});
  EXPECT_GE(row(d, "exact").counts.hessian, 10);
  EXPECT_GE(row(d, "exact").counts.cross, 1);
}

TEST(Diagnose, AnUnsafeRateIsNamedAndNothingIsRecommended) {
  const NamedProblem named = make_problem("ridge");
  DiagnoseOptions options;
  options.inner.rate = 100;
  options.given.rate = true;
  const Diagnosis d = diagnose(diagnosed(named), options);
  EXPECT_TRUE(d.unsafe_rate);
  EXPECT_FALSE(d.recommendation.reaches);
  EXPECT_THAT(d.recommendation.sentence, AllOf(HasSubstr("rate of 100"), HasSubstr("largest safe one")));
  EXPECT_THAT(d.recommendation.sentence, Not(HasSubstr("more inner steps")));
  options.inner.rate = 0.2;
  EXPECT_FALSE(diagnose(diagnosed(named), options).unsafe_rate);
}

// The K that a row names against the least K that does it, tried one by one.
TEST(Diagnose, NeededTermsAreTheLeastOnes) {
  const NamedProblem named = make_problem("ridge");
  Oracle oracle(*named.problem);
  const Tensor x = named.problem->initial_outer(0), start = named.problem->initial_inner(0);
  const ImplicitReference reference = implicit_reference(oracle, x, start);
  const Tensor exact = reference.value;
  // The same for the other question, a random df/dw.
  const WithLinearOuter another =
      with_random_outer(*named.problem, oracle.outer_gradients(reference.inner.w, x, {}), 0);
  Oracle another_oracle(another);
  const Tensor another_exact = implicit_reference(another_oracle, x, start).value;
  for (const double accuracy : {0.1, 1e-2, 1e-4}) {
    DiagnoseOptions options;
    options.accuracy = accuracy;
    options.calls_per_method =
        5000;  // bisection to its end: doubling alone to K = 256 takes up the default 600
    const Diagnosis d = diagnose(diagnosed(named), options);
    for (const std::string method : {"cg", "neumann", "fixed-point"}) {
      const MethodDiagnosis& m = row(d, method);
      ASSERT_TRUE(m.terms && m.reaches) << method;
      InnerLoop run;
      run.options = d.recommendation.inner;
      run.options.steps = m.inner_steps;
      Trajectory inner = run_inner(oracle, x, start, run);
      int64_t least = 1;
      for (;; ++least) {
        EstimatorSettings settings;
        settings.terms = least;
        const auto estimator = make_estimator(method, settings);
        const Hypergradient h = estimator->estimate(oracle, {.x = x, .inner = inner});
        const Hypergradient a = estimator->estimate(another_oracle, {.x = x, .inner = inner});
        if (relative_error(h.value, exact) <= 0.9 * accuracy &&
            relative_error(a.value, another_exact) <= 0.9 * accuracy)
          break;
      }
      EXPECT_GE(*m.terms, least) << method;
      EXPECT_LE(static_cast<double>(*m.terms), 1.07 * static_cast<double>(least) + 1) << method;
    }
  }
}

// Extrapolated by the theory's contraction, K is on the safe side and not without measure.
TEST(Diagnose, ExtrapolatedTermsAreSafeAndNotFarOff) {
  const NamedProblem named = make_problem("ridge");
  DiagnoseOptions options;
  options.accuracy = 1e-3;
  const Diagnosis full = diagnose(diagnosed(named), options);
  options.calls_per_method = 20;
  options.inner = full.recommendation.inner;
  options.given = {.optimizer = true, .momentum = true, .rate = true, .steps = true};
  const Diagnosis short_one = diagnose(diagnosed(named), options);
  const MethodDiagnosis& measured = row(full, "neumann");
  const MethodDiagnosis& guessed = row(short_one, "neumann");
  ASSERT_EQ(measured.basis, Basis::measured);
  ASSERT_EQ(guessed.basis, Basis::extrapolated);
  EXPECT_LE(*guessed.terms, 3 * *measured.terms);
  options.settings.terms = *guessed.terms;
  EXPECT_LE(row(diagnose(diagnosed(named), options), "neumann").asked_error, 0.9 * options.accuracy);
  EXPECT_EQ(guessed.bytes, measured.bytes);
  EXPECT_EQ(guessed.counts.hessian, *guessed.terms);
}

class ConvexProblems : public ::testing::TestWithParam<std::tuple<std::string, double>> {};

// The recommendation is run from nothing, and its error is below the wish.
TEST_P(ConvexProblems, RecommendationMeetsTheAccuracy) {
  const auto& [name, accuracy] = GetParam();
  const NamedProblem named = make_problem(name);
  DiagnoseOptions options;
  options.accuracy = accuracy;
  const Recommendation r = diagnose(diagnosed(named), options).recommendation;
  EXPECT_TRUE(r.reaches) << r.sentence;
  EXPECT_EQ(r.basis, Basis::measured);
  EstimatorSettings settings;
  settings.terms = settings.truncate = r.terms;
  settings.linear_rate = r.linear_rate;
  settings.curvature = r.curvature;
  Oracle oracle(*named.problem);
  const Tensor x = named.problem->initial_outer(0), start = named.problem->initial_inner(0);
  const Tensor exact = implicit_reference(oracle, x, start).value;
  const auto run = hypergradient_at(oracle, x, start, r.inner, *make_estimator(r.method, settings));
  const double error = relative_error(run.hypergradient.value, exact);
  EXPECT_LE(error, accuracy) << r.sentence;
  EXPECT_NEAR(error, r.error, 1e-3 * accuracy);
}

INSTANTIATE_TEST_SUITE_P(All, ConvexProblems,
                         ::testing::Combine(::testing::Values("toy", "toy-interfering", "quadratic", "ridge",
                                                              "softmax-regression", "hyper-cleaning",
                                                              "task-interaction", "counterexample"),
                                            ::testing::Values(0.1, 0.01, 1e-4)),
                         [](const auto& named) {
                           const double accuracy = std::get<1>(named.param);
                           return test_name(std::get<0>(named.param)) + (accuracy > 0.05   ? "_tenth"
                                                                         : accuracy > 1e-3 ? "_hundredth"
                                                                                           : "_1e4th");
                         });

TEST(Diagnose, ConvexListIsComplete) {
  int convex = 0;
  for (const ProblemRow& problem : problem_rows()) convex += make_problem(problem.name).convex ? 1 : 0;
  EXPECT_EQ(convex, 8) << "a new convex problem belongs into ConvexProblems";
}

// Neither the inner problem nor the linear system can be solved within so few calls: the bounds that are left
// are shown, and are no reason to take a method.
TEST(Diagnose, ABoundAloneIsNotRecommended) {
  Diagonal diagonal(at::logspace(-1, 1, 100, 10.0, doubles()));
  diagonal.facts.check.solvable = false;
  diagonal.facts.inner_steps = 1000;
  diagonal.facts.inner_rate = 0.1;
  DiagnoseOptions options;
  options.calls_per_method = 1;
  const Diagnosis d = diagnose(diagonal.facts, options);
  EXPECT_EQ(d.reference, ReferenceKind::none);
  for (const std::string name : {"cg", "neumann", "fixed-point"}) {
    const MethodDiagnosis& m = row(d, name);
    EXPECT_EQ(m.basis, Basis::bound) << name;
    EXPECT_FALSE(m.usable) << name;
    EXPECT_THAT(m.note, HasSubstr("only a bound")) << name;
  }
  EXPECT_FALSE(d.recommendation.reaches);
  EXPECT_EQ(d.recommendation.basis, Basis::none);
  EXPECT_THAT(d.recommendation.sentence, HasSubstr("nothing could be measured here"));
}

TEST(Diagnose, TooFewInnerStepsAreNamed) {
  const NamedProblem named = make_problem("ridge");
  DiagnoseOptions options;
  options.inner.steps = 2;
  options.given.steps = true;
  const Diagnosis d = diagnose(diagnosed(named), options);
  EXPECT_GT(d.inner_error, 0.01);
  EXPECT_FALSE(d.recommendation.reaches);
  EXPECT_THAT(d.recommendation.sentence, HasSubstr("take more inner steps"));
}

TEST(Diagnose, AnotherPointThanTheStart) {
  const NamedProblem named = make_problem("ridge");
  Oracle oracle(*named.problem);
  DiagnoseOptions options;
  options.x = named.problem->initial_outer(0) + 0.3;
  options.w = solve_inner(oracle, options.x, named.problem->initial_inner(0)).w;
  const Diagnosis d = diagnose(diagnosed(named), options);
  EXPECT_LT(d.start.gradient_norm, 1e-9);
  EXPECT_EQ(d.recommendation.inner.steps, 1);  // it is solved already
  EXPECT_LE(d.recommendation.error, 0.01);
}

TEST(Diagnose, NegativeCurvatureIsRecognised) {
  const NamedProblem named = make_problem("mlp");
  const Diagnosis d = diagnose(diagnosed(named), {});
  ASSERT_TRUE(d.negative_curvature);
  const Tensor x = named.problem->initial_outer(0);
  Oracle oracle(*named.problem);
  InnerLoop run;
  run.options = d.recommendation.inner;
  const Tensor w = run_inner(oracle, x, named.problem->initial_inner(0), run).final.w;
  const Tensor values = std::get<0>(at::linalg_eigh(dense_at(*named.problem, w, x).hessian));
  EXPECT_LT(number(values.min()), 0);
  EXPECT_NEAR(d.end.spectrum.smallest, number(values.min()), 1e-6);
  EXPECT_EQ(d.reference, ReferenceKind::iterate);
  EXPECT_EQ(d.recommendation.curvature.kind, "gauss-newton");
  EXPECT_GT(d.recommendation.curvature.damping, 0);
  EXPECT_LE(d.recommendation.error, 0.01);
  EXPECT_THAT(d.recommendation.sentence,
              AllOf(HasSubstr("eigenvalues range from -"), HasSubstr("Gauss-Newton")));
  EXPECT_FALSE(d.solution.has_value());
}

// The same where no Gauss-Newton matrix is to be had: back-propagation through some of the steps.
TEST(Diagnose, NegativeCurvatureWithoutGaussNewton) {
  const FunctionProblem problem(
      [](const Tensor& w, const Tensor& x, const Batch&) {
        return (w * w * (w - 1) * (w - 1)).sum() + (x * w).sum() - 0.5 * w[0] * w[0] + 0.5 * w[0].pow(4);
      },
      [](const Tensor& w, const Tensor&, const Batch&) { return 0.5 * (w - 2).pow(2).sum(); },
      vec({0.02, 0.5}), vec({0.01, 0.02}));
  const DiagnosedProblem facts{
      .problem = &problem, .name = "two wells", .inner_steps = 6, .inner_rate = 0.05};
  const Diagnosis d = diagnose(facts, {});
  ASSERT_TRUE(d.negative_curvature);
  EXPECT_FALSE(make_estimator(d.recommendation.method, {})->implicit()) << d.recommendation.sentence;
  EXPECT_LE(d.recommendation.error, 0.01);
  EXPECT_THAT(row(d, "cg").note, HasSubstr("not positive"));
}

TEST(Diagnose, ALearnedStartIsNotImplicit) {
  const NamedProblem named = make_problem("learned-rate");
  const Diagnosis d = diagnose(diagnosed(named), {});
  EXPECT_EQ(d.reference, ReferenceKind::unrolled);
  EXPECT_FALSE(make_estimator(d.recommendation.method, {})->implicit());
  EXPECT_LE(d.recommendation.error, 0.01);
  EXPECT_THAT(d.recommendation.sentence, HasSubstr("part of x"));
}

TEST(Diagnose, OptionsThatCannotBe) {
  const auto said = [](DiagnoseOptions options) { return message([&] { options.validate(); }); };
  EXPECT_THAT(said({.accuracy = 0}), AllOf(HasSubstr("accuracy = 0"), HasSubstr("above 0 and below 1")));
  EXPECT_THAT(said({.accuracy = 1}), HasSubstr("accuracy = 1"));
  EXPECT_THAT(said({.calls_per_method = 0}), HasSubstr("calls = 0"));
}

}  // namespace
}  // namespace bilevel::test
