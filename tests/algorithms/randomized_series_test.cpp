// BSA and TTSA: the one random summand, its expectation, the size of the samples, and TTSA's two time scales.
#include "bilevel/algorithms/randomized_series.h"

#include <gmock/gmock.h>

#include <cmath>

#include "bilevel/algorithms/bsa.h"
#include "bilevel/algorithms/ttsa.h"
#include "tests/algorithms/sampled.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t b = 4;

BsaOptions small_bsa() {
  BsaOptions options;
  options.inner.steps = 3;
  options.inner.rate = sampled_rate;
  options.outer.rate = 1e-3;
  options.series.terms = b;
  return options;
}
TtsaOptions small_ttsa() {
  TtsaOptions options;
  options.inner.rate = sampled_rate;
  options.outer.rate = 1e-3;
  options.series.terms = b;
  return options;
}

// On full sets there is nothing random but k, so the summands can be told apart, counted and averaged.
TEST(RandomizedSeries, every_length_is_equally_likely_and_the_mean_is_neumann) {
  const Bsa bsa(small_bsa());
  SampledRun first(bsa, StreamOptions{});
  first.step();
  const Dense at = first.at(first.state.inner.w, first.before.x);
  std::vector<Tensor> directions;
  Tensor mean = at::zeros_like(at.p), summand = at.p;
  for (int64_t k = 0; k < b; ++k) {
    const Tensor v = static_cast<double>(b) * sampled_rate * summand;
    mean += v / static_cast<double>(b);
    directions.push_back(at.direct - at.cross.mv(v));
    summand = summand - sampled_rate * at.hessian.mv(summand);
  }
  EXPECT_LT(relative_error(mean, dense_neumann(at.hessian, at.p, sampled_rate, b - 1)), 1e-12);

  constexpr int draws = 2000;
  std::vector<int> hits(b, 0);
  Tensor average = at::zeros_like(at.direct);
  SampledRun run(bsa, StreamOptions{});
  const AlgorithmState start = run.state;
  for (int i = 0; i < draws; ++i) {
    run.state = start;  // the streams go on
    const IterationSummary summary = run.step();
    average += summary.direction / draws;
    const size_t k = run.calls().hessian.size();
    ASSERT_LT(k, static_cast<size_t>(b));
    ASSERT_LT(relative_error(summary.direction, directions[k]), 1e-12);
    ++hits[k];
  }
  // A quarter each, standard deviation sqrt(2000 * 3/16) = 19.4.
  for (const int hit : hits) EXPECT_NEAR(hit, draws / static_cast<double>(b), 5 * 19.4);
  // The mean of the directions, to five of its own standard deviations.
  const Tensor expected = at.direct - at.cross.mv(mean);
  double variance = 0;
  for (const Tensor& d : directions) variance += std::pow(length(d - expected), 2) / static_cast<double>(b);
  EXPECT_LT(length(average - expected), 5 * std::sqrt(variance / draws));
}

// prod (I - eta H(z_i)) on the very samples, one example and one sample for every derivative.
void expect_the_formula_on_single_samples(const Algorithm& algorithm, size_t steps) {
  SampledRun run(algorithm);
  size_t products = 0;
  for (int iteration = 0; iteration < 12; ++iteration) {
    const IterationSummary summary = run.step();
    const auto& calls = run.calls();
    const Tensor& w = run.state.inner.w;
    const Dense at = run.at(w, run.before.x, calls.cross.at(0), calls.outer_gradient.at(0));
    Tensor summand = at.p;
    for (const Batch& z : calls.hessian) {
      summand = summand - sampled_rate * run.at(w, run.before.x, z).hessian.mv(summand);
    }
    const Tensor v = static_cast<double>(b) * sampled_rate * summand;
    EXPECT_LT(relative_error(summary.direction, at.direct - at.cross.mv(v)), 1e-11) << iteration;
    EXPECT_EQ(calls.inner_gradient.size(), steps);
    for (const auto& list : {calls.inner_gradient, calls.outer_gradient, calls.hessian, calls.cross}) {
      EXPECT_THAT(sizes(list), Each(1));
    }
    EXPECT_EQ(different({calls.inner_gradient, calls.outer_gradient, calls.hessian, calls.cross}),
              steps + 1 + calls.hessian.size() + 1);
    products += calls.hessian.size();
  }
  EXPECT_GT(products, 0U);
}
TEST(Bsa, takes_the_formula_on_single_samples) { expect_the_formula_on_single_samples(Bsa(small_bsa()), 3); }
TEST(Ttsa, takes_the_formula_on_single_samples) {
  expect_the_formula_on_single_samples(Ttsa(small_ttsa()), 1);
}

TEST(Bsa, can_read_the_runs_batches) {
  BsaOptions options = small_bsa();
  options.series.single_sample = false;
  const Bsa bsa(options);
  SampledRun run(bsa);
  for (int iteration = 0; iteration < 4; ++iteration) {
    run.step();
    EXPECT_THAT(sizes(run.calls().inner_gradient), Each(5));
    EXPECT_THAT(sizes(run.calls().hessian), Each(5));
    EXPECT_THAT(sizes(run.calls().outer_gradient), Each(4));
  }
}

TEST(Ttsa, steps_fall_on_two_time_scales) {
  TtsaOptions options = small_ttsa();
  options.inner.steps = 7;                             // it takes one all the same
  options.outer.schedule.kind = ScheduleKind::cosine;  // and its own schedules
  options.inner.schedule.kind = ScheduleKind::constant;
  options.outer.schedule.total_steps = 3;
  const Ttsa ttsa(options);
  SampledRun run(ttsa, StreamOptions{});
  for (int k = 0; k < 6; ++k) {
    const IterationSummary summary = run.step();
    const Tensor gradient = run.at(run.before.inner.w, run.before.x).gradient;
    EXPECT_LT(relative_error(run.before.inner.w - run.state.inner.w,
                             sampled_rate * std::pow(k + 1, -0.4) * gradient),
              1e-9)
        << k;
    EXPECT_LT(relative_error(run.before.x - run.state.x, 1e-3 * std::pow(k + 1, -0.6) * summary.direction),
              1e-9)
        << k;
  }
}

TEST(RandomizedSeries, misuse_names_the_option_and_the_bound) {
  BsaOptions bsa = small_bsa();
  bsa.series.terms = 0;
  EXPECT_THAT(message([&] { Bsa{bsa}; }), AllOf(HasSubstr("bsa: terms = 0"), HasSubstr("at least 1")));
  TtsaOptions ttsa = small_ttsa();
  ttsa.outer_exponent = 0.3;
  EXPECT_THAT(message([&] { Ttsa{ttsa}; }), AllOf(HasSubstr("outer_exponent = 0.3"), HasSubstr("0.4")));
}

}  // namespace
}  // namespace bilevel::test
