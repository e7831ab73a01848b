// What one iteration of each rule costs, derivative by derivative, counted by a problem that knows nothing of
// Oracle.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "tests/algorithms/known_optima.h"

namespace bilevel::test {
namespace {

struct Cost {
  int64_t inner_gradient = 0, outer_gradient = 0, hessian = 0, cross = 0;
  bool operator==(const Cost&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Cost& c) {
  return out << c.inner_gradient << " inner gradients, " << c.outer_gradient << " outer, " << c.hessian
             << " hessian, " << c.cross << " cross";
}

constexpr int64_t T = 6, K = 4;

// The cost of iteration `iteration`, from 0; T inner steps and K terms.
Cost cost_of(
    const std::string& name, int64_t iteration,
    const std::function<void(AlgorithmSettings&)>& change = [](AlgorithmSettings&) {}) {
  const Known known = known_ridge();
  CountingProblem counted(*known.problem);
  AlgorithmSettings settings = settings_for(known);
  settings.inner.steps = T;
  settings.hypergradient.terms = K;
  settings.hypergradient.truncate = K;
  change(settings);
  const auto algorithm = make_algorithm(name, settings);
  Oracle oracle(counted);
  Streams streams(1, 12, 12);
  AlgorithmState state = algorithm->init(oracle, known.x, known.w);
  for (int64_t k = 0; k < iteration; ++k) algorithm->step(oracle, state, streams);
  counted.forget();
  const OracleCounts before = oracle.counts();
  algorithm->step(oracle, state, streams);
  const auto& calls = counted.calls();
  const OracleCounts told = oracle.counts() - before;
  const auto count = [](const std::vector<Batch>& list) { return static_cast<int64_t>(list.size()); };
  const Cost cost{count(calls.inner_gradient), count(calls.outer_gradient), count(calls.hessian),
                  count(calls.cross)};
  EXPECT_EQ(cost, (Cost{told.inner_gradient, told.outer_gradient, told.hessian, told.cross})) << name;
  EXPECT_EQ(calls.samples, told.samples) << name;
  return cost;
}

TEST(AlgorithmCounts, double_loops) {
  EXPECT_EQ(cost_of("reverse", 0), (Cost{T, 1, T - 1, T}));
  EXPECT_EQ(cost_of("itd", 1), (Cost{T, 1, T - 1, T}));
  EXPECT_EQ(cost_of("krmd", 1), (Cost{T, 1, K - 1, K}));
  EXPECT_EQ(cost_of("idarts", 1), (Cost{T, 1, K, 1}));
  EXPECT_EQ(cost_of("aid-fp", 0), (Cost{T, 1, K - 1, 1}));
  EXPECT_EQ(cost_of("aid-fp", 1), (Cost{T, 1, K, 1}));
  // A warm start costs CG one product; in three dimensions it is done after three.
  EXPECT_EQ(cost_of("aid-cg", 0), (Cost{T, 1, 3, 1}));
  EXPECT_EQ(cost_of("aid-cg", 1), (Cost{T, 1, 4, 1}));
  EXPECT_EQ(cost_of("double-loop", 1), (Cost{T, 1, 4, 1}));
  // T_k = ceil(6 (k+1)^(1/4)): 6, 8, 8, 9
  EXPECT_EQ(cost_of("aid-increasing", 0).inner_gradient, 6);
  EXPECT_EQ(cost_of("aid-increasing", 1).inner_gradient, 8);
  EXPECT_EQ(cost_of("aid-increasing", 3).inner_gradient, 9);
}

// A virtual step and a real one. Clipping's derivative needs the gradient once more, a difference two of
// grad_x g in place of the cross product.
TEST(AlgorithmCounts, darts) {
  EXPECT_EQ(cost_of("darts", 1), (Cost{2, 1, 0, 1}));
  EXPECT_EQ(cost_of("darts-first-order", 1), (Cost{1, 1, 0, 0}));
  EXPECT_EQ(cost_of("darts", 1, [](AlgorithmSettings& s) { s.inner.clip_norm = 1; }), (Cost{3, 1, 0, 1}));
  EXPECT_EQ(
      cost_of("darts", 1, [](AlgorithmSettings& s) { s.hypergradient.curvature.difference_cross = true; }),
      (Cost{4, 1, 0, 0}));
}

TEST(AlgorithmCounts, stocbio_takes_a_product_for_each_of_its_batches) {
  EXPECT_EQ(cost_of("stocbio", 0), (Cost{T, 1, K, 1}));
  EXPECT_EQ(cost_of("stocbio", 3), (Cost{T, 1, K, 1}));
}

// As many products as were drawn, from 0 to K-1: the stream tells which.
TEST(AlgorithmCounts, bsa_and_ttsa_take_a_random_number_of_products) {
  Streams twin(1, 12, 12);
  std::set<int64_t> seen;
  for (int64_t iteration = 0; iteration < 12; ++iteration) {
    const int64_t drawn = twin.random("series length").below(K);
    seen.insert(drawn);
    EXPECT_EQ(cost_of("bsa", iteration), (Cost{T, 1, drawn, 1})) << iteration;
    EXPECT_EQ(cost_of("ttsa", iteration), (Cost{1, 1, drawn, 1})) << iteration;
  }
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2, 3}));
}

// The paper counts 1 inner gradient, 1 grad_w f, 1 Hessian product, 2 grad_x f and 2 cross products. Our
// oracle gives both gradients of f in one pass, so the three of f are three passes: grad_w f on its own
// sample, and grad_x f on another at the new point and at the old one. The first iteration has one more, the
// first stochastic gradient.
TEST(AlgorithmCounts, storm_double_loop_takes_two_of_everything) {
  const auto reverse = [](AlgorithmSettings& s) { s.method = "reverse"; };
  EXPECT_EQ(cost_of("storm-double-loop", 0, reverse), (Cost{3 * T, 3, 3 * (T - 1), 3 * T}));
  EXPECT_EQ(cost_of("storm-double-loop", 1, reverse), (Cost{2 * T, 2, 2 * (T - 1), 2 * T}));
  EXPECT_EQ(cost_of("storm-double-loop", 1), (Cost{2 * T, 2, 6, 2}));  // CG is done after three dimensions
}

// A matrix of three columns at the new point, and from the second iteration on at the old one.
TEST(AlgorithmCounts, stable_takes_a_product_for_each_inner_variable) {
  EXPECT_EQ(cost_of("stable", 0), (Cost{1, 1, 3, 3}));
  EXPECT_EQ(cost_of("stable", 1), (Cost{1, 1, 6, 6}));
}

TEST(AlgorithmCounts, fsla_takes_what_the_paper_counts) {
  EXPECT_EQ(cost_of("fsla", 0), (Cost{1, 4, 1, 2}));
  EXPECT_EQ(cost_of("fsla", 1), (Cost{1, 3, 1, 2}));
  EXPECT_EQ(cost_of("fsla", 5), (Cost{1, 3, 1, 2}));
}

TEST(AlgorithmCounts, single_loops_take_a_new_series_every_time) {
  EXPECT_EQ(cost_of("single-loop-neumann", 0), (Cost{1, 4, K, 2}));
  EXPECT_EQ(cost_of("single-loop-neumann", 2), (Cost{1, 3, K, 2}));
  EXPECT_EQ(cost_of("single-loop-cg", 2), (Cost{1, 3, 3, 2}));  // three dimensions: done after three
}

// Its tolerances decide. Three dimensions: CG is done after three products, and one more for a warm start.
TEST(AlgorithmCounts, hoag_takes_what_its_tolerances_need) {
  EXPECT_EQ(cost_of("hoag", 0).hessian, 3);
  for (int64_t iteration = 0; iteration < 8; ++iteration) {
    const Cost cost = cost_of("hoag", iteration);
    EXPECT_LE(cost.inner_gradient, 30);
    EXPECT_LE(cost.hessian, 4);
    EXPECT_EQ(cost.outer_gradient, 1);
  }
}

TEST(AlgorithmCounts, soba_takes_one_of_each) { EXPECT_EQ(cost_of("soba", 2), (Cost{1, 1, 1, 1})); }

TEST(AlgorithmCounts, of_the_newer_rules) {
  EXPECT_EQ(cost_of("saba", 0), (Cost{1, 1, 1, 1}));  // one block each; more in variance_reduction_test.cpp
  EXPECT_EQ(cost_of("saba", 2), (Cost{1, 1, 1, 1}));
  EXPECT_EQ(cost_of("ma-soba", 2), (Cost{1, 1, 1, 1}));
  EXPECT_EQ(cost_of("amigo", 0), (Cost{T, 1, K, 1}));
  EXPECT_EQ(cost_of("amigo", 1), (Cost{T, 1, K, 1}));
  // The old point is evaluated on the new sample, from the second iteration on.
  EXPECT_EQ(cost_of("mrbo", 0), (Cost{1, 1, K, 1}));
  EXPECT_EQ(cost_of("mrbo", 1), (Cost{2, 2, 2 * K, 2}));
  Streams streams(1, 12, 12);
  EXPECT_EQ(cost_of("sustain", 0), (Cost{1, 1, streams.random("length").below(K), 1}));
  for (int64_t k = 1; k < 6; ++k) {
    EXPECT_EQ(cost_of("sustain", k), (Cost{2, 2, 2 * streams.random("length").below(K), 2}));
  }
  // Nothing but the large batch; T steps and T + 1 corrections; T steps and the large batch, period 10.
  EXPECT_EQ(cost_of("vrbo", 0), (Cost{1, 1, K, 1}));
  EXPECT_EQ(cost_of("vrbo", 1), (Cost{2 * (T + 2), 2 * (T + 2), 2 * (T + 2) * K, 2 * (T + 2)}));
  EXPECT_EQ(cost_of("vrbo", 10), (Cost{2 * T + 3, 1, K, 1}));
  EXPECT_EQ(cost_of("f2sa", 1), (Cost{2 * T + 2, T + 1, 0, 0}));
  EXPECT_EQ(cost_of("bome", 1), (Cost{T + 3, 1, 0, 0}));
}

}  // namespace
}  // namespace bilevel::test
