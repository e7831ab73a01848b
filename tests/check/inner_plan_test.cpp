// The rates, momenta and contractions that a spectrum asks for, against steps that are really taken.
#include "bilevel/check/inner_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "bilevel/check/least_terms.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

// By how much late steps shrink an error on the quadratic of these curvatures.
double measured_contraction(const InnerOptions& options, const Tensor& curvatures) {
  const auto optimizer = make_inner_optimizer(options);
  InnerState state = optimizer->start(at::ones_like(curvatures));
  constexpr int64_t early = 200, late = 400;
  double first = 0;
  for (int64_t t = 0; t < late; ++t) {
    if (t == early) first = length(state.w);
    state = optimizer->step(state, curvatures * state.w, {options.rate, {}});
  }
  return std::pow(length(state.w) / first, 1.0 / (late - early));
}

TEST(InnerPlan, ContractionIsThatOfTheSteps) {
  const Tensor curvatures = vec({0.05, 0.7, 2.0, 5.0});
  for (const std::string optimizer : {"gd", "heavy-ball", "nesterov"}) {
    for (const double rate : {0.02, 0.1, 0.18, 0.3}) {
      const InnerOptions options{.optimizer = optimizer, .rate = rate, .momentum = 0.8};
      const double predicted = step_contraction(options, 0.05, 5.0);
      const double safe = make_inner_optimizer(options)->largest_safe_rate(5.0);
      EXPECT_EQ(predicted < 1, rate < safe) << optimizer << ' ' << rate;
      // Complex roots turn, so that the norm swings a little about its trend.
      EXPECT_NEAR(measured_contraction(options, curvatures), predicted, 0.01) << optimizer << ' ' << rate;
    }
  }
  EXPECT_TRUE(std::isnan(step_contraction({.optimizer = "adam"}, 1, 2)));
}

TEST(InnerPlan, BestRateIsNotBeatenByOthers) {
  EXPECT_DOUBLE_EQ(best_inner_rate({.optimizer = "gd"}, 1, 9), 0.2);
  for (const std::string optimizer : {"gd", "heavy-ball", "nesterov"}) {
    InnerOptions options{.optimizer = optimizer, .momentum = 0.6};
    options.rate = best_inner_rate(options, 0.1, 4);
    const double best = step_contraction(options, 0.1, 4);
    for (double rate = 0.01; rate < 2; rate *= 1.05) {
      options.rate = rate;
      EXPECT_GE(step_contraction(options, 0.1, 4), best - 2e-3) << optimizer << ' ' << rate;
    }
  }
}

TEST(InnerPlan, MomentumWhereItPaysAndNothingThatWasGivenIsChanged) {
  // With q = sqrt(mu / L), 1 - q against 1 - q^2 saves half of the steps where 1 = (1 - q) (1 + q)^2: from a
  // condition of 2.618 on.
  const InnerOptions easy = plan_inner({}, {}, 1, 2.5);
  EXPECT_EQ(easy.optimizer, "gd");
  EXPECT_DOUBLE_EQ(easy.rate, 0.4);
  EXPECT_EQ(plan_inner({}, {}, 1, 2.8).optimizer, "nesterov");
  EXPECT_EQ(plan_inner({}, {}, 1, 1).optimizer, "gd");
  const InnerOptions hard = plan_inner({}, {}, 0.002, 5);
  EXPECT_EQ(hard.optimizer, "nesterov");
  EXPECT_DOUBLE_EQ(hard.rate, 0.2);
  EXPECT_DOUBLE_EQ(hard.momentum, 0.961);  // (1 - 0.02) / (1 + 0.02) = 0.96078
  EXPECT_NEAR(step_contraction(hard, 0.002, 5), std::sqrt(0.961 * 0.9996), 1e-12);  // at best 1 - 0.02
  const InnerOptions harder = plan_inner({}, {}, 1e-8, 1);                          // never as much as 1
  EXPECT_NEAR(harder.momentum, 1 - 1.9e-4, 1e-12);
  // Where x may double the curvature, Nesterov's rate is below 4 / (3 10); a rate that was given stays, and
  // gradient descent with it.
  const InnerOptions moving = plan_inner({}, {}, 0.002, 5, 10);
  EXPECT_EQ(moving.optimizer, "nesterov");
  EXPECT_DOUBLE_EQ(moving.rate, 0.133);
  EXPECT_LT(step_contraction(moving, 0.002, 10), 1);
  EXPECT_EQ(plan_inner({.rate = 0.2}, {.rate = true}, 0.002, 5, 10).optimizer, "gd");
  // And where it may grow fourfold even plain steps at 1 / L would not stay safe.
  EXPECT_DOUBLE_EQ(plan_inner({.optimizer = "gd"}, {.optimizer = true}, 0.002, 5, 20).rate, 0.1);
  const InnerOptions given =
      plan_inner({.optimizer = "gd", .rate = 0.07}, {.optimizer = true, .rate = true}, 0.002, 5);
  EXPECT_EQ(given.optimizer, "gd");
  EXPECT_DOUBLE_EQ(given.rate, 0.07);
}

TEST(InnerPlan, StepsToShrink) {
  EXPECT_EQ(steps_to_shrink(0.5, 0.25), 2);
  EXPECT_EQ(steps_to_shrink(0.9, 0.01), 44);
  EXPECT_EQ(steps_to_shrink(0.9, 2), 0);
  EXPECT_EQ(steps_to_shrink(0, 0.1), 1);
  EXPECT_GT(steps_to_shrink(1.0, 0.1), int64_t{1} << 60);
}

TEST(LeastTerms, FindsTheLeastAndSaysWhatItDidNotTry) {
  int64_t trials = 0;
  const auto falling = [&](int64_t k) {
    ++trials;
    return std::pow(0.5, static_cast<double>(k));
  };
  const auto always = [](int64_t) { return true; };
  LeastTerms found = least_terms(falling, {.target = 1e-3}, always);
  EXPECT_TRUE(found.reached);
  EXPECT_FALSE(found.extrapolated);
  EXPECT_EQ(found.terms, 10);
  EXPECT_DOUBLE_EQ(found.error, std::pow(0.5, 10));

  found = least_terms(falling, {.target = 1e-3, .contraction = 0.5}, [](int64_t k) { return k <= 4; });
  EXPECT_TRUE(found.reached && found.extrapolated);
  EXPECT_EQ(found.tried, 4);
  EXPECT_EQ(found.terms, 10);

  // What is left to the terms of 1e-3 beside a floor of 5e-4, from at most 2^-4 + 5e-4: 7 halvings.
  found = least_terms(falling, {.target = 1e-3, .contraction = 0.5, .floor = 5e-4},
                      [](int64_t k) { return k <= 4; });
  EXPECT_TRUE(found.reached && found.extrapolated);
  EXPECT_EQ(found.terms, 11);
  found = least_terms(falling, {.target = 1e-3, .contraction = 0.5, .floor = 2e-3},
                      [](int64_t k) { return k <= 4; });
  EXPECT_FALSE(found.reached);

  found = least_terms(falling, {.most = 6, .target = 1e-3}, always);
  EXPECT_FALSE(found.reached);
  EXPECT_EQ(found.terms, 6);

  trials = 0;
  const auto floor = [&](int64_t k) { return std::max(falling(k), 0.1); };
  // Nothing falls before the seventieth step: no floor where so many are expected.
  const auto late = [](int64_t k) { return k < 70 ? 0.5 : 1e-4; };
  EXPECT_FALSE(least_terms(late, {.target = 1e-3}, always).reached);
  found = least_terms(late, {.target = 1e-3, .patient_until = 60}, always);
  EXPECT_TRUE(found.reached);
  EXPECT_GE(found.terms, 70);
  EXPECT_LE(found.terms, 75);

  // Nothing is a number: what is returned has been tried all the same.
  found = least_terms([](int64_t) { return std::nan(""); }, {.first = 4, .target = 1e-3}, always);
  EXPECT_EQ(found.terms, 4);
  EXPECT_FALSE(found.reached);
  found = least_terms(floor, {.target = 1e-3}, always);
  EXPECT_FALSE(found.reached);
  EXPECT_DOUBLE_EQ(found.error, 0.1);
  EXPECT_LE(trials, 8);  // it does not wait for ever
}

}  // namespace
}  // namespace bilevel::test
