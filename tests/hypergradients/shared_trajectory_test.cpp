// One trajectory for all estimators: none of them writes to it, and what it kept for others changes neither
// an estimate nor its price.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/mlp.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

std::vector<int64_t> calls(const OracleCounts& c) {
  return {c.inner_gradient, c.outer_gradient, c.hessian, c.cross, c.samples};
}

class SharedTrajectory : public ::testing::TestWithParam<std::string> {};

TEST_P(SharedTrajectory, gives_what_a_trajectory_of_its_own_gives) {
  const Mlp mlp;
  Oracle oracle(mlp);
  const Tensor x = mlp.initial_outer(0), start = mlp.initial_inner(0);
  for (const char* optimizer : {"gd", "adam"}) {
    const InnerOptions inner{.optimizer = optimizer, .steps = 23, .rate = 0.01};
    const Trajectory shared = run_all_kept(oracle, x, start, inner);
    EstimatorSettings settings;
    settings.byte_budget = 4 * shared.final.bytes();
    const auto estimator = make_estimator(GetParam(), settings);
    const InnerAndHypergradient own = hypergradient_at(oracle, x, start, inner, *estimator);
    for (int time = 0; time < 2; ++time) {  // the first one leaves everything where it was
      const Hypergradient h = estimator->estimate(oracle, {.x = x, .inner = shared});
      EXPECT_TRUE(at::equal(h.value, own.hypergradient.value));
      EXPECT_EQ(h.bytes_kept, own.hypergradient.bytes_kept) << optimizer;
      EXPECT_EQ(calls(h.counts), calls(own.hypergradient.counts)) << optimizer;
    }
    EXPECT_EQ(shared.kept.size(), 23U);
  }
}

INSTANTIATE_TEST_SUITE_P(, SharedTrajectory, ::testing::ValuesIn(estimator_names()),
                         [](const auto& param) { return test_name(param.param); });

// Where a trajectory is the estimator's alone its states are freed on the way, all but the first.
TEST(ReverseBinomial, frees_the_states_that_it_has_reversed_from) {
  const Mlp mlp;
  Oracle oracle(mlp);
  const InnerOptions inner{.steps = 23, .rate = 0.01};
  const int64_t state_bytes = static_cast<int64_t>(mlp.initial_inner(0).nbytes());
  EstimatorSettings settings;
  settings.byte_budget = 4 * state_bytes;
  const auto estimator = make_estimator("reverse-binomial", settings);
  EXPECT_EQ(estimator->keeps(23, state_bytes).size(), 4U);
  const InnerAndHypergradient own =
      hypergradient_at(oracle, mlp.initial_outer(0), mlp.initial_inner(0), inner, *estimator);
  EXPECT_EQ(own.hypergradient.bytes_kept, 4 * state_bytes);
  ASSERT_EQ(own.inner.kept.size(), 1U);
  EXPECT_EQ(own.inner.kept.begin()->first, 0);
}

}  // namespace
}  // namespace bilevel::test
