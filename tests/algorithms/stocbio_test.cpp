// stocBiO: Algorithm 3 on the very batches that were read, their independence and their sizes.
#include "bilevel/algorithms/stocbio.h"

#include <gmock/gmock.h>

#include "tests/algorithms/known_optima.h"
#include "tests/algorithms/sampled.h"
#include "tests/messages.h"

namespace bilevel::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StocbioOptions small_stocbio() {
  StocbioOptions options;
  options.inner.steps = 3;
  options.inner.rate = sampled_rate;
  options.outer.rate = 1e-3;
  options.terms = 4;
  options.linear_rate = 0.7 * sampled_rate;
  return options;
}

// eta times the whole sum, new batches for every product, training data for H and C, and df/dx.
TEST(Stocbio, the_direction_is_algorithm_3_on_the_batches_it_read) {
  const Stocbio stocbio(small_stocbio());
  SampledRun run(stocbio);
  for (int iteration = 0; iteration < 3; ++iteration) {
    const IterationSummary summary = run.step();
    const auto& calls = run.calls();
    Tensor w = run.before.inner.w;  // warm-started
    for (const Batch& b : calls.inner_gradient) w = w - sampled_rate * run.at(w, run.before.x, b).gradient;
    EXPECT_LT(relative_error(run.state.inner.w, w), 1e-12);
    const Dense at_cross = run.at(w, run.before.x, calls.cross.at(0), calls.outer_gradient.at(0));
    Tensor r = at_cross.p, sum = r;
    for (const Batch& b : calls.hessian) {
      r = r - small_stocbio().linear_rate * run.at(w, run.before.x, b).hessian.mv(r);
      sum = sum + r;
    }
    const Tensor expected = at_cross.direct - at_cross.cross.mv(small_stocbio().linear_rate * sum);
    EXPECT_GT(length(at_cross.direct), 0.05 * length(expected));  // it would be missed
    EXPECT_LT(relative_error(summary.direction, expected), 1e-12);
    EXPECT_LT(relative_error(run.state.x, run.before.x - 1e-3 * expected), 1e-12);
    EXPECT_EQ(calls.hessian.size(), 4U);
    EXPECT_EQ(different({calls.inner_gradient, calls.outer_gradient, calls.hessian, calls.cross}),
              3U + 1 + 4 + 1);
  }
}

TEST(Stocbio, without_decay_every_batch_is_the_runs_or_the_given_one) {
  StocbioOptions options = small_stocbio();
  const Stocbio plain(options);
  SampledRun of_the_run(plain);
  of_the_run.step();
  EXPECT_THAT(sizes(of_the_run.calls().hessian), ElementsAre(5, 5, 5, 5));
  EXPECT_THAT(sizes(of_the_run.calls().cross), ElementsAre(5));
  EXPECT_THAT(sizes(of_the_run.calls().outer_gradient), ElementsAre(4));
  options.hessian_batch = 2;
  const Stocbio given(options);
  SampledRun of_two(given);
  of_two.step();
  EXPECT_THAT(sizes(of_two.calls().hessian), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(sizes(of_two.calls().inner_gradient), ElementsAre(5, 5, 5));
}

// |B_{Q+1-j}| = ceil(B Q (1 - eta mu)^(j-1)): the largest is read first.
TEST(Stocbio, batches_decay_along_the_series) {
  StocbioOptions options = small_stocbio();
  options.terms = 3;
  options.hessian_batch = 2;
  options.strong_convexity = 0.5 / options.linear_rate;
  const Stocbio stocbio(options);
  SampledRun run(stocbio);
  run.step();
  EXPECT_THAT(sizes(run.calls().hessian), ElementsAre(6, 3, 2));
  // Whole numbers are not rounded past themselves, small ones not to nothing, the run's size stands in for B.
  options.hessian_batch = 0;
  options.terms = 10;
  options.strong_convexity = 0.1 / options.linear_rate;
  const Stocbio of_ten(options);
  EXPECT_EQ(of_ten.batch_of_product(0, options.linear_rate, 10), 100);
  EXPECT_EQ(of_ten.batch_of_product(1, options.linear_rate, 10), 90);
  EXPECT_EQ(of_ten.batch_of_product(2, options.linear_rate, 10), 81);
  EXPECT_EQ(of_ten.batch_of_product(3, options.linear_rate, 10), 73);
  EXPECT_EQ(of_ten.batch_of_product(100, options.linear_rate, 10), 1);
}

TEST(Stocbio, a_run_on_full_sets_is_full_and_is_the_neumann_estimator) {
  StocbioOptions options = small_stocbio();
  options.strong_convexity = 0.5 / options.linear_rate;
  const Stocbio stocbio(options);
  SampledRun run(stocbio, StreamOptions{});
  const IterationSummary summary = run.step();
  EXPECT_THAT(sizes(run.calls().hessian), ElementsAre(12, 12, 12, 12));
  const Dense at = run.at(run.state.inner.w, run.before.x);
  const Tensor v = dense_neumann(at.hessian, at.p, options.linear_rate, 4);
  EXPECT_LT(relative_error(summary.direction, at.direct - at.cross.mv(v)), 1e-12);
}

TEST(Stocbio, misuse_names_the_option_and_the_bound) {
  StocbioOptions options = small_stocbio();
  options.strong_convexity = 1.5 / options.linear_rate;
  EXPECT_THAT(message([&] { Stocbio{options}; }),
              AllOf(HasSubstr("strong_convexity"), HasSubstr("below 1 / linear rate")));
  options = small_stocbio();
  options.terms = -1;
  EXPECT_THAT(message([&] { Stocbio{options}; }), AllOf(HasSubstr("terms = -1"), HasSubstr("at least 0")));
  options = small_stocbio();
  options.hessian_batch = -3;
  EXPECT_THAT(message([&] { Stocbio{options}; }), HasSubstr("hessian_batch = -3"));
}

}  // namespace
}  // namespace bilevel::test
