// A problem divided among ranks against the problem itself: every estimator on every problem of the registry,
// with 1, 2 and 3 ranks, in double precision.
#include "bilevel/distributed/distributed_problem.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/distributed/rank_slice.h"
#include "bilevel/problems/registry.h"
#include "bilevel/problems/ridge.h"
#include "tests/distributed/ranks.h"
#include "tests/support.h"
#include "tests/unsolved_setting.h"

namespace bilevel::test {
namespace {

std::vector<std::string> problem_names() {
  std::vector<std::string> names;
  for (const ProblemRow& row : problem_rows()) names.push_back(row.name);
  return names;
}

TEST(RankSlice, pieces_follow_each_other_and_make_up_the_batch) {
  for (const int64_t count : {1, 2, 7, 9}) {
    Batch batch;
    batch.index = Random(3).permutation(20).narrow(0, 0, count);
    batch.seed = 5;
    std::vector<Tensor> pieces;
    double weights = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const RankSlice slice = slice_of(batch, 20, rank, 3);
      EXPECT_EQ(slice.count, slice.batch.index.numel());
      EXPECT_EQ(slice.batch.seed, 5U);
      EXPECT_EQ(slice.empty(), slice.weight == 0);
      pieces.push_back(slice.batch.index);
      weights += slice.weight;
    }
    EXPECT_TRUE(at::equal(at::cat(pieces), batch.index));
    EXPECT_NEAR(weights, 1, 1e-15);
  }
  EXPECT_TRUE(at::equal(slice_of({}, 7, 1, 3).batch.index, at::tensor({3, 4}, at::kLong)));
}

// Four steps: every kind of batch below comes, and forward mode has as many products as hyperparameters in
// each, each of them a sum over the ranks.
UnsolvedSetting few_steps(const std::string& name) {
  UnsolvedSetting s(name);
  s.options.steps = 4;
  s.settings.terms = 2;
  s.settings.truncate = 2;
  s.settings.byte_budget = 2 * static_cast<int64_t>(s.start.nbytes());
  return s;
}

// Batches of another size each step, the last ones smaller than the group.
InnerBatches uneven_batches(const Problem& problem) {
  return [&problem](int64_t t) {
    const int64_t all = problem.inner_samples();
    const int64_t size = std::max<int64_t>(1, t % 3 == 0   ? all
                                              : t % 3 == 1 ? all / 2 + t % 2
                                                           : std::min<int64_t>(all, 2));
    if (size == all && t == 0) return Batch{};
    const auto step = static_cast<uint64_t>(t);
    return Batch{Random(step).permutation(all).narrow(0, 0, size), step};
  };
}

std::vector<Tensor> all_hypergradients(const Problem& problem, const UnsolvedSetting& s,
                                       OracleCounts& counts) {
  Oracle oracle(problem);
  std::vector<Tensor> values;
  const Trajectory full = run_all_kept(oracle, s.x, s.start, s.options);
  const Trajectory batched = run_all_kept(oracle, s.x, s.start, s.options, uneven_batches(problem));
  const int64_t few = std::min<int64_t>(problem.outer_samples(), 2);
  const Batch outer{Random(99).permutation(problem.outer_samples()).narrow(0, 0, few)};
  for (const EstimatorRow& row : estimator_rows()) {
    values.push_back(estimate_along(row.name, s.settings, oracle, s.x, full).value);
    values.push_back(estimate_along(row.name, s.settings, oracle, s.x, batched, outer).value);
  }
  values.push_back(oracle.inner_loss(full.final.w, s.x).reshape({1}));
  values.push_back(oracle.outer_loss(full.final.w, s.x).reshape({1}));
  values.push_back(oracle.inner_gradient_in_outer(full.final.w, s.x, {}));
  values.push_back(oracle.outer_gradient_in_outer(full.final.w, s.x, {}).x);
  counts = oracle.counts();
  return values;
}

class EveryProblem : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryProblem, has_the_same_hypergradients_by_every_estimator_on_1_2_and_3_ranks) {
  BILEVEL_NEEDS_GLOO();
  const UnsolvedSetting alone = few_steps(GetParam());
  OracleCounts expected_counts;
  const std::vector<Tensor> expected = all_hypergradients(alone.problem, alone, expected_counts);
  ASSERT_EQ(expected.size(), 2 * estimator_rows().size() + 4);
  for (const int size : {1, 2, 3}) {
    std::vector<std::vector<Tensor>> found(static_cast<size_t>(size));
    run_ranks(size, [&](const auto& group) {
      const UnsolvedSetting own = few_steps(GetParam());
      const DistributedProblem problem(own.problem, group);
      problem.check(GetParam(), own.start, own.x);
      OracleCounts counts;
      found[static_cast<size_t>(group->rank())] = all_hypergradients(problem, own, counts);
      EXPECT_EQ(counts.inner_gradient, expected_counts.inner_gradient);
      EXPECT_EQ(counts.outer_gradient, expected_counts.outer_gradient);
      EXPECT_EQ(counts.hessian, expected_counts.hessian);
      EXPECT_EQ(counts.cross, expected_counts.cross);
      EXPECT_EQ(counts.samples, expected_counts.samples);
      EXPECT_EQ(group->communication().bytes > 0, own.problem.inner_samples() > 1);
    });
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(relative_error(found[0][i], expected[i]), 1e-10)
          << "value " << i << " on " << size << " ranks";
      for (size_t rank = 1; rank < found.size(); ++rank) {
        EXPECT_TRUE(at::equal(found[rank][i], found[0][i])) << "rank " << rank << " has other bits";
      }
    }
  }
}

// Products that no estimator above asks for, and graphs of the losses themselves.
TEST_P(EveryProblem, has_the_same_products_and_graphs) {
  BILEVEL_NEEDS_GLOO();
  const UnsolvedSetting s(GetParam());
  const Tensor v = random_like(s.start, 1), u = random_like(s.x, 2);
  Batch two;
  if (s.problem.inner_samples() > 2) two.index = at::tensor({2, 1}, at::kLong);
  const auto products = [&](const Problem& problem) {
    std::vector<Tensor> values;
    for (const Batch& batch : {Batch{}, two}) {
      const auto at = problem.linearize(s.start, s.x, batch);
      const auto both = at->hessian_and_cross(v);
      values.insert(values.end(), {at->gradient(), at->hessian(v), at->cross(v), at->cross_transposed(u),
                                   both.first, both.second});
      if (s.problem.inner_parts(s.start, s.x, batch)) values.push_back(at->gauss_newton(v));
      if (s.start.numel() > 60) continue;  // a row of the matrix is a sum over the ranks
      const Dense dense = dense_at(problem, s.start, s.x, batch, batch.is_full() ? batch : Batch{two.index});
      values.insert(values.end(), {dense.gradient, dense.hessian, dense.cross, dense.p, dense.direct});
    }
    return values;
  };
  const std::vector<Tensor> expected = products(s.problem);
  run_ranks(3, [&](const auto& group) {
    const std::vector<Tensor> found = products(DistributedProblem(s.problem, group));
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_LT(relative_error(found[i], expected[i]), 1e-12) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryProblem, ::testing::ValuesIn(problem_names()),
                         [](const auto& row) { return test_name(row.param); });

class SumsInsteadOfMeans : public ForwardingProblem {
 public:
  using ForwardingProblem::ForwardingProblem;
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& b) const override {
    return base_.outer_loss(w, x, b) * static_cast<double>(b.size(outer_samples()));
  }
};
class DrawsFromTheSeed : public ForwardingProblem {
 public:
  using ForwardingProblem::ForwardingProblem;
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& b) const override {
    const Tensor noise = Random(b.seed).normal({b.size(inner_samples())}, w.options());
    return base_.inner_loss(w, x, b) + noise.mean();
  }
};

std::string refusal_of(const Problem& problem) {
  const auto errors = try_ranks(2, [&](const auto& group) {
    DistributedProblem(problem, group).check("mine", problem.initial_inner(0) + 1, problem.initial_outer(0));
  });
  try {
    if (errors[0]) std::rethrow_exception(errors[0]);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

TEST(DistributedProblem, a_loss_that_is_no_mean_is_refused_by_name) {
  BILEVEL_NEEDS_GLOO();
  const Ridge ridge((RidgeOptions()));
  EXPECT_EQ(refusal_of(ridge), "none");
  const std::string sum = refusal_of(SumsInsteadOfMeans(ridge)), seed = refusal_of(DrawsFromTheSeed(ridge));
  EXPECT_TRUE(sum.starts_with("mine: its outer loss of ")) << sum;
  EXPECT_TRUE(
      sum.ends_with(" it is no mean over examples plus a regulariser, or it draws from the batch's seed, and "
                    "cannot be divided; run it with one process"))
      << sum;
  EXPECT_TRUE(seed.starts_with("mine: its inner loss of ")) << seed;
}

}  // namespace
}  // namespace bilevel::test
