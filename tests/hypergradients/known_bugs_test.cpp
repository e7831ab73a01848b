// Bugs of other systems (docs/mathematics.md, "Mistakes"): each test holds the buggy form, written here, and
// one check that it fails and ours passes. Numbers 1, 2 and 6 stand in
// tests/core/conjugate_gradient_bugs_test.cpp, 4 in tests/problems.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>
#include <string>

#include "bilevel/core/batch.h"
#include "bilevel/core/central_difference.h"
#include "bilevel/core/outer.h"
#include "bilevel/problems/ridge.h"
#include "bilevel/problems/toy.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

class KnownBugs : public ::testing::Test {
 protected:
  const Ridge ridge;
  Oracle oracle{ridge};
  const Tensor x = ridge.initial_outer(0), w = random_vector(20, 1);
  const Dense d = dense_at(ridge, w, x);
  Trajectory here = standing_at(w, 0.3);

  Hypergradient neumann(int64_t terms, const std::vector<Batch>& batches = {}) {
    EstimatorSettings settings;
    settings.terms = terms;
    return make_estimator("neumann", settings)->estimate(oracle, {.x = x, .inner = here, .hessian = batches});
  }
};

TEST_F(KnownBugs, number_3_neumann_sum_scaled_wrongly) {
  const double eta = 0.3;
  const auto solves = [&](const Tensor& v) { return relative_error(v, solve(d.hessian, d.p)) < 1e-8; };
  Tensor term = d.p, sum = at::zeros_like(d.p);
  for (int k = 0; k < 400; ++k) {
    sum = sum + term;
    term = term - eta * d.hessian.mv(term);
  }
  EXPECT_FALSE(solves(eta * term + sum));  // eta * v_last + sum, for eta * (v_last + sum)
  EXPECT_TRUE(solves(eta * (term + sum)));
  EXPECT_TRUE(solves(neumann(400).solution));
}

// Over all pairs of batches of a partition the mean of (I - eta H_i)(I - eta H_j) is (I - eta H)^2, because
// the two are independent; the mean of (I - eta H_i)^2 is not.
TEST_F(KnownBugs, number_3_one_batch_reused_for_all_products) {
  std::vector<Batch> partition;
  for (int64_t i = 0; i < 5; ++i) partition.push_back({at::arange(10 * i, 10 * i + 10)});
  const auto unbiased = [&](const Tensor& mean) {
    return relative_error(mean, dense_neumann(d.hessian, d.p, 0.3, 2)) < 1e-12;
  };
  Tensor independent = at::zeros_like(w), reused = at::zeros_like(w);
  for (const Batch& i : partition) {
    for (const Batch& j : partition) independent = independent + neumann(2, {i, j}).solution / 25;
    reused = reused + neumann(2, {i}).solution / 5;  // one batch for both products, if one asks for it
  }
  EXPECT_TRUE(unbiased(independent));
  EXPECT_FALSE(unbiased(reused));
}

TEST_F(KnownBugs, number_3_hessian_taken_on_validation_data) {
  const auto is_that_of_g = [&](const Tensor& v) {
    return relative_error(v, dense_neumann(d.hessian, d.p, 0.3, 5)) < 1e-12;
  };
  const Tensor valid_hessian = ridge.valid_matrix().t().mm(ridge.valid_matrix()) / 50 + at::diag(x.exp());
  EXPECT_FALSE(is_that_of_g(dense_neumann(valid_hessian, d.p, 0.3, 5)));
  EXPECT_TRUE(is_that_of_g(neumann(5).solution));
}

TEST_F(KnownBugs, number_3_direct_gradient_dropped) {
  const Toy toy(doubles(), true);  // f has x in it
  Oracle other(toy);
  const Tensor at_x = vec({0.4, -0.7});
  const Dense at_solution = dense_at(toy, at_x, at_x);  // w*(x) = x
  const auto objective = [&](const Tensor& y) { return number(toy.outer_loss(y, y, {})); };
  const auto is_the_derivative = [&](const Tensor& h) {
    return relative_error(h, finite_differences(objective, at_x)) < 1e-7;
  };
  const Tensor indirect = -at_solution.cross.mv(solve(at_solution.hessian, at_solution.p));
  EXPECT_FALSE(is_the_derivative(indirect));
  for (const char* name : {"exact", "cg", "minres", "nystrom"}) {
    EXPECT_TRUE(is_the_derivative(estimate_along(name, {}, other, at_x, standing_at(at_x)).value)) << name;
  }
}

TEST_F(KnownBugs, number_5_nan_replaced_by_zeros) {
  class NanGradient : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    Tensor outer_loss(const Tensor& v, const Tensor& u, const Batch& b) const override {
      return base_.outer_loss(v, u, b) + (v[3] - v[3].detach()).square().sqrt();
    }
  };
  const NanGradient broken(ridge);
  Oracle other(broken);
  // What a caller can see: a zero with a good status looks like a stationary point.
  const auto caller_notices = [](const Hypergradient& h) {
    return h.status == Status::not_finite || !h.value.isfinite().all().item<bool>();
  };
  const Hypergradient ours = estimate_along("neumann", {}, other, x, here);
  EXPECT_TRUE(caller_notices(ours));
  Hypergradient buggy = ours;
  if (buggy.value.isnan().any().item<bool>()) buggy.value = at::zeros_like(buggy.value);
  buggy.status = Status::ok;
  EXPECT_FALSE(caller_notices(buggy));
}

// The first step must not depend on where the origin lies: moving x and the problem together moves the step
// along.
TEST_F(KnownBugs, number_7_first_momentum_term_built_from_unrelated_points) {
  const auto gradient = [](const Tensor& y, const Tensor& shift) { return 2 * (y - shift) + 1; };
  const auto moves_along = [&](const std::function<Tensor(const Tensor& y, const Tensor& g)>& first_step) {
    const Tensor y = vec({0.5, -1}), shift = vec({3, 4}), zero = vec({0, 0});
    const Tensor here_moved = first_step(y, gradient(y, zero)) + shift;
    return relative_error(first_step(y + shift, gradient(y + shift, shift)), here_moved) < 1e-14;
  };
  EXPECT_TRUE(moves_along([](const Tensor& y, const Tensor& g) {
    const OuterOptimizer momentum =
        make_outer_sgd({.rate = 0.1, .momentum = 0.9, .schedule = {}, .preparation = {}});
    OuterState state = momentum.init(y);
    return momentum.step(y, g, state);
  }));
  EXPECT_FALSE(moves_along([](const Tensor& y, const Tensor& g) {
    const Tensor previous = at::zeros_like(y);  // there is no previous x yet
    return y - 0.1 * g + 0.9 * (y - previous);
  }));
}

TEST_F(KnownBugs, number_8_seed_that_is_used_in_a_file_name_only) {
  const auto seed_matters = [](const std::function<Tensor(uint64_t seed)>& draw) {
    return at::equal(draw(1), draw(1)) && !at::equal(draw(1), draw(2)) &&
           !at::equal(draw(1), draw(1ULL << 40));
  };
  EXPECT_FALSE(seed_matters([](uint64_t /*seed*/) { return Random(0).permutation(50); }));
  EXPECT_TRUE(seed_matters([&](uint64_t seed) {
    EstimatorSettings settings;
    settings.terms = 4;
    settings.seed = seed;
    return estimate_along("nystrom", settings, oracle, x, here).value;
  }));
  EXPECT_TRUE(
      seed_matters([](uint64_t seed) { return BatchStream(seed, "inner", 50, {.size = 9}).at(3).index; }));
  // A run on batches of one seed repeats itself; on another seed it is another run.
  EXPECT_TRUE(seed_matters([&](uint64_t seed) {
    const BatchStream stream(seed, "inner", 50, {.size = 9});
    InnerLoop run;
    run.options.steps = 5;
    run.batches = [&](int64_t t) { return stream.at(t); };
    return run_inner(oracle, x, w, run).final.w;
  }));
}

// The other half of number 8: names that all run the same code.
TEST_F(KnownBugs, number_8_options_that_all_run_the_same_code) {
  const auto all_differ = [](const std::vector<Tensor>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (relative_error(values[i], values[j]) < 1e-6) return false;
      }
    }
    return true;
  };
  InnerOptions options;
  options.steps = 12;
  const Trajectory inner = run_all_kept(oracle, x, w, options);
  EstimatorSettings settings;
  settings.terms = settings.truncate = 4;
  // One name of each family: reverse and its checkpointed forms, forward and general-backward are equal by
  // theorem.
  std::vector<Tensor> values;
  for (const char* name : {"exact", "one-step", "t1t2", "reverse", "truncated", "neumann", "cg", "minres",
                           "fixed-point", "nystrom", "general-forward"}) {
    values.push_back(estimate_along(name, settings, oracle, x, inner).value);
  }
  EXPECT_TRUE(all_differ(values));
  EXPECT_FALSE(all_differ({values[0], values[1], values[0]}));
}

TEST_F(KnownBugs, number_9_difference_step_that_does_not_restore_the_weights) {
  const auto untouched = [&](const std::function<void(Tensor & weights)>& take_difference) {
    Tensor weights = w.clone();
    take_difference(weights);
    return at::equal(weights, w);
  };
  const Tensor v = random_vector(20, 2);
  const double epsilon = 0.01 / length(v);
  EXPECT_FALSE(untouched([&](Tensor& weights) {
    weights.add_(v, epsilon);
    ridge.inner_gradient(weights, x, {});
    weights.add_(v, -2 * epsilon);
    ridge.inner_gradient(weights, x, {});
    weights.add_(v, epsilon);  // back to where it was, but for rounding
  }));
  EXPECT_TRUE(untouched([&](Tensor& weights) {
    EstimatorSettings settings;
    settings.curvature.difference_hessian = settings.curvature.difference_cross = true;
    estimate_along("neumann", settings, oracle, x, standing_at(weights, 0.3));
  }));
}

TEST_F(KnownBugs, number_10_divided_by_two_times_eps_without_parentheses) {
  const Tensor v = random_vector(20, 2);
  const auto is_the_product = [&](const Tensor& difference) {
    return relative_error(difference, d.hessian.mv(v)) < 1e-9;
  };
  const double eps = 0.01 / length(v);
  const Tensor above = ridge.inner_gradient(w + eps * v, x, {}),
               below = ridge.inner_gradient(w - eps * v, x, {});
  EXPECT_FALSE(is_the_product((above - below) / 2 * eps));
  const auto gradient = [&](const Tensor& at_w) { return ridge.inner_gradient(at_w, x, {}); };
  EXPECT_TRUE(is_the_product(central_difference(gradient, w, v, 0.01)));
}

}  // namespace
}  // namespace bilevel::test
