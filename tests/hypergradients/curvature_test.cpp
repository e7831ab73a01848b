// What implicit estimators multiply with: the damped Hessian, the Gauss-Newton matrix, central differences,
// low-rank approximations, indefinite matrices, and a batch of its own for every product.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "bilevel/core/central_difference.h"
#include "bilevel/hypergradients/neumann.h"
#include "bilevel/hypergradients/nystrom.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/ridge.h"
#include "bilevel/problems/softmax_regression.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Rows of d y / d w.
Tensor jacobian(const Tensor& y, const Tensor& w) {
  std::vector<Tensor> rows;
  for (const Tensor& entry : y.reshape({-1}).unbind()) {
    const Tensor row = torch::autograd::grad({entry}, {w}, {}, true, false, /*allow_unused=*/true)[0];
    rows.push_back(row.defined() ? row.reshape({-1}) : at::zeros_like(w.detach()).reshape({-1}));
  }
  return at::stack(rows);
}

// J' L'' J + the regulariser's Hessian, each factor by itself from the problem's parts.
Tensor dense_gauss_newton(const Problem& problem, const Tensor& w, const Tensor& x) {
  const at::AutoGradMode enable(true);
  const Tensor leaf = w.detach().requires_grad_(true);
  const auto parts = problem.inner_parts(leaf, x, {});
  const Tensor j = jacobian(parts->outputs, leaf);
  const Tensor outputs = parts->outputs.detach().requires_grad_(true);
  const Tensor first = torch::autograd::grad({parts->loss(outputs)}, {outputs}, {}, true, true)[0];
  const Tensor regular = torch::autograd::grad({parts->regularizer}, {leaf}, {}, true, true)[0];
  return j.t().mm(jacobian(first, outputs)).mm(j) + jacobian(regular, leaf);
}

class Curvature : public ::testing::Test {
 protected:
  const Mlp problem;
  Oracle oracle{problem};
  const Tensor x = problem.initial_outer(0) + 0.3 * random_like(problem.initial_outer(0), 1);
  const Tensor w = problem.initial_inner(0) + 0.3 * random_like(problem.initial_inner(0), 2);
  const Dense d = dense_at(problem, w, x);
  const Tensor identity = at::eye(136, doubles());

  Hypergradient estimate(const std::string& name, const EstimatorSettings& settings) {
    return estimate_along(name, settings, oracle, x, standing_at(w));
  }
};

TEST_F(Curvature, damped_is_the_dense_formula) {
  const Tensor damped = d.hessian + 2 * identity;
  EstimatorSettings settings;
  settings.curvature.damping = 2;
  settings.linear_rate = 0.2;
  settings.terms = 300;
  const Tensor expected = d.direct - d.cross.mv(solve(damped, d.p));
  for (const char* name : {"exact", "cg", "minres", "neumann", "fixed-point"}) {
    EXPECT_LT(relative_error(estimate(name, settings).value, expected), 1e-11) << name;
  }
  EXPECT_LT(relative_error(estimate("exact", settings).solution, solve(damped, d.p)), 1e-12);
}

TEST_F(Curvature, gauss_newton_is_the_dense_formula_and_positive_where_the_hessian_is_not) {
  const Tensor matrix = dense_gauss_newton(problem, w, x);
  EXPECT_LT(number(std::get<0>(at::linalg_eigh(d.hessian)).min()), -1e-3);
  const Tensor values = std::get<0>(at::linalg_eigh(matrix));
  EXPECT_GT(number(values.min()), 1e-3);
  EstimatorSettings settings;
  settings.curvature.kind = "gauss-newton";
  settings.terms = 400;
  for (const double damping : {0.0, 0.3}) {
    settings.curvature.damping = damping;
    const Tensor expected = d.direct - d.cross.mv(solve(matrix + damping * identity, d.p));
    for (const char* name : {"exact", "cg", "minres"}) {
      const Hypergradient found = estimate(name, settings);
      EXPECT_LT(relative_error(found.value, expected), 1e-10) << name;
      EXPECT_EQ(found.status, Status::converged) << name;
    }
  }
  settings.curvature.damping = 0;
  settings.terms = 3;
  settings.linear_rate = 0.1;
  const Tensor series = d.direct - d.cross.mv(dense_neumann(matrix, d.p, 0.1, 3));
  EXPECT_LT(relative_error(estimate("neumann", settings).value, series), 1e-12);
}

TEST_F(Curvature, gauss_newton_is_the_hessian_where_the_model_is_linear) {
  const SoftmaxRegression linear;
  Oracle other(linear);
  const Tensor weights = random_like(linear.initial_inner(0), 1), regularizers = linear.initial_outer(0);
  EstimatorSettings plain, gauss_newton;
  gauss_newton.curvature.kind = "gauss-newton";
  const Trajectory here = standing_at(weights);
  EXPECT_LT(relative_error(estimate_along("exact", gauss_newton, other, regularizers, here).value,
                           estimate_along("exact", plain, other, regularizers, here).value),
            1e-11);
}

TEST_F(Curvature, differences_converge_to_the_exact_products_as_the_square_of_the_step) {
  const Tensor kept = w.clone();
  for (const bool hessian : {false, true}) {
    EstimatorSettings settings;
    settings.terms = 3;
    settings.linear_rate = 0.1;
    const Tensor exact = estimate("neumann", settings).value;
    settings.curvature.difference_hessian = hessian;
    settings.curvature.difference_cross = !hessian;
    double before = 0;
    for (const double step : {0.08, 0.04, 0.02, 0.01}) {
      settings.curvature.difference_step = step;
      const double error = relative_error(estimate("neumann", settings).value, exact);
      EXPECT_LT(error, 1e-2);
      if (before > 0) {
        EXPECT_NEAR(before / error, 4, 0.1) << step;
      }
      before = error;
    }
    EXPECT_TRUE(at::equal(w, kept));  // bit for bit
  }
}

// DARTS's own way to its one product: at the w before the step, along what comes back through the step.
TEST_F(Curvature, one_step_and_truncated_take_differences_at_the_weights_before_each_step) {
  InnerOptions options;
  options.optimizer = "nesterov";
  options.steps = 3;
  const Trajectory inner = run_all_kept(oracle, x, w, options);
  for (const char* name : {"one-step", "truncated"}) {
    EstimatorSettings settings;
    settings.truncate = 2;
    const Tensor exact = estimate_along(name, settings, oracle, x, inner).value;
    settings.curvature.difference_cross = true;
    double before = 0;
    for (const double step : {0.08, 0.04, 0.02, 0.01}) {
      settings.curvature.difference_step = step;
      const double error = relative_error(estimate_along(name, settings, oracle, x, inner).value, exact);
      EXPECT_GT(error, 0);
      EXPECT_LT(error, 1e-2);
      if (before > 0) {
        EXPECT_NEAR(before / error, 4, 0.1) << name << step;
      }
      before = error;
    }
  }
}

// Ridge's gradients are linear in w, so the difference has no error but rounding, whatever the step.
TEST_F(Curvature, differences_are_exact_where_the_gradient_is_linear_in_w) {
  const Ridge ridge;
  Oracle other(ridge);
  const Trajectory here = standing_at(random_vector(20, 1), 0.3);
  EstimatorSettings settings;
  const Tensor exact = estimate_along("neumann", settings, other, ridge.initial_outer(0), here).value;
  settings.curvature.difference_hessian = settings.curvature.difference_cross = true;
  for (const double step : {0.01, 0.5}) {
    settings.curvature.difference_step = step;
    EXPECT_LT(
        relative_error(estimate_along("neumann", settings, other, ridge.initial_outer(0), here).value, exact),
        1e-11);
  }
}

// "Central differences" of docs/mathematics.md: w moves by 0.01 whatever the vector's length, to either side,
// and is itself not written to.
TEST_F(Curvature, a_difference_evaluates_at_a_hundredth_from_w) {
  class Recording : public ForwardingProblem {
   public:
    using ForwardingProblem::ForwardingProblem;
    Tensor inner_loss(const Tensor& v, const Tensor& u, const Batch& b) const override {
      points->push_back(v.detach().clone());
      return base_.inner_loss(v, u, b);
    }
    std::shared_ptr<std::vector<Tensor>> points = std::make_shared<std::vector<Tensor>>();
  };
  const Recording recording(problem);
  Oracle other(recording);
  EstimatorSettings settings;
  settings.terms = 0;
  settings.curvature.difference_cross = true;
  const Hypergradient found = estimate_along("neumann", settings, other, x, standing_at(w));
  ASSERT_EQ(recording.points->size(), 2U);
  const Tensor step = 0.01 * found.solution / found.solution.norm();
  EXPECT_LT(relative_error((*recording.points)[0] - w, step), 1e-12);
  EXPECT_LT(relative_error((*recording.points)[1] - w, -step), 1e-12);
}

TEST_F(Curvature, a_difference_along_zero_or_nan_is_zero_or_nan) {
  const auto gradient = [](const Tensor& v) { return v.sin(); };
  EXPECT_FALSE(central_difference(gradient, w, at::zeros_like(w), 0.01).defined());
  const Tensor bad = at::full_like(w, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(central_difference(gradient, w, bad, 0.01).isnan().all().item<bool>());
  EXPECT_LT(relative_error(central_difference(gradient, w, 7 * w, 1e-4), 7 * w.cos() * w), 1e-8);
}

// H = B'B of rank 3 in 10 dimensions: with damping rho, five directions find all there is.
TEST_F(Curvature, nystrom_is_exact_on_low_rank_plus_damping_and_at_full_rank) {
  const Tensor b = Random(1).normal({3, 10}, doubles());
  const FunctionProblem low_rank(
      [b](const Tensor& v, const Tensor& u, const Batch&) { return 0.5 * (b.mv(v) - u).square().sum(); },
      [](const Tensor& v, const Tensor&, const Batch&) { return v.dot(v) + v.sum(); }, random_vector(10, 2),
      vec({1, 2, 3}));
  Oracle other(low_rank);
  const Tensor start = low_rank.initial_inner(0), u = low_rank.initial_outer(0);
  const Dense at_start = dense_at(low_rank, start, u);
  EstimatorSettings settings;
  settings.curvature.damping = 0.2;
  const Tensor v = solve(at_start.hessian + 0.2 * at::eye(10, doubles()), at_start.p);
  for (const int64_t rank : {3, 5, 10, 50}) {
    settings.terms = rank;
    const Hypergradient found = estimate_along("nystrom", settings, other, u, standing_at(start));
    EXPECT_LT(relative_error(found.solution, v), 1e-11) << rank;
    EXPECT_LT(relative_error(found.value, at_start.direct - at_start.cross.mv(v)), 1e-11) << rank;
    EXPECT_EQ(found.status, Status::ok);
  }
  settings.terms = 2;
  EXPECT_GT(relative_error(estimate_along("nystrom", settings, other, u, standing_at(start)).solution, v),
            1e-3);
}

// g = w'Aw/2 - x'w with an indefinite A: C = -I, H = A.
TEST_F(Curvature, negative_curvature_is_reported_and_minres_is_right_there) {
  const Tensor a = at::diag(vec({2, 1, -0.5, 0.7}));
  const FunctionProblem indefinite(
      [a](const Tensor& v, const Tensor& u, const Batch&) { return 0.5 * v.dot(a.mv(v)) - u.dot(v); },
      [](const Tensor& v, const Tensor&, const Batch&) { return v.sum() + 0.5 * v.dot(v); },
      vec({1, 2, 3, 4}), vec({1, 1, 1, 1}));
  Oracle other(indefinite);
  const Tensor start = indefinite.initial_inner(0), u = indefinite.initial_outer(0);
  const Tensor expected = solve(a, 1 + start);  // -C H^-1 p = H^-1 p
  EstimatorSettings settings;
  settings.terms = 8;
  const auto found = [&](const char* name) {
    return estimate_along(name, settings, other, u, standing_at(start));
  };
  for (const char* name : {"cg", "neumann", "exact", "nystrom"}) {
    EXPECT_EQ(found(name).status, Status::negative_curvature) << name;
  }
  // The fixed point sees v'Av of its own iterates, which stays positive here, and that its residual grows.
  EXPECT_EQ(found("fixed-point").status, Status::diverged);
  EXPECT_LT(relative_error(found("exact").value, expected),
            1e-14);  // the factorisation is right all the same
  EXPECT_EQ(found("minres").status, Status::converged);
  EXPECT_LT(relative_error(found("minres").value, expected), 1e-12);
}

// A batch of its own for every Hessian product, as stocBiO draws them, and others for the cross product and
// f.
class StochasticCurvature : public ::testing::Test {
 protected:
  const Ridge ridge;
  CountingProblem counting{ridge};
  Oracle oracle{counting};
  const Tensor x = ridge.initial_outer(0), w = random_vector(20, 1);
  Trajectory here = standing_at(w, 0.2);

  static Batch batch(int64_t i) { return {at::arange(5 * i, 5 * i + 5), static_cast<uint64_t>(i)}; }
  static std::vector<Batch> batches(int64_t count) {
    std::vector<Batch> result;
    for (int64_t i = 0; i < count; ++i) result.push_back(batch(i));
    return result;
  }
  Hypergradient estimate(const std::string& name, int64_t terms, const std::vector<Batch>& hessian) {
    EstimatorSettings settings;
    settings.terms = terms;
    const Batch outer{at::arange(30, 37)}, cross{at::arange(40, 49)};
    counting.forget();
    return make_estimator(name, settings)
        ->estimate(oracle, {.x = x, .inner = here, .outer = outer, .cross = cross, .hessian = hessian});
  }
  static std::vector<uint64_t> seeds(const std::vector<Batch>& list) {
    std::vector<uint64_t> result;
    for (const Batch& b : list) result.push_back(b.seed);
    return result;
  }
};

TEST_F(StochasticCurvature, every_product_reads_its_own_batch_once) {
  const Hypergradient found = estimate("neumann", 4, batches(4));
  EXPECT_EQ(seeds(counting.calls().hessian), (std::vector<uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(counting.calls().samples, 4 * 5 + 7 + 9);
  const Dense at_cross = dense_at(ridge, w, x, {at::arange(40, 49)}, {at::arange(30, 37)});
  Tensor term = at_cross.p, sum = at_cross.p;
  for (int64_t k = 0; k < 4; ++k) {
    term = term - 0.2 * dense_at(ridge, w, x, batch(k)).hessian.mv(term);
    sum = sum + term;
  }
  EXPECT_LT(relative_error(found.solution, 0.2 * sum), 1e-13);
  EXPECT_LT(relative_error(found.value, -at_cross.cross.mv(0.2 * sum)), 1e-13);
}

TEST_F(StochasticCurvature, one_batch_serves_all_products_and_none_means_the_full_set) {
  for (const char* name : {"neumann", "cg", "minres", "fixed-point", "nystrom", "exact"}) {
    estimate(name, 4, {batch(7)});
    for (const uint64_t seed : seeds(counting.calls().hessian)) EXPECT_EQ(seed, 7U) << name;
    EXPECT_GE(counting.calls().hessian.size(), 3U) << name;
    estimate(name, 4, {});
    for (const Batch& b : counting.calls().hessian) EXPECT_TRUE(b.is_full()) << name;
  }
}

// Over the iterates every product reads the batch of its step; what stands at the last iterate, the
// request's.
TEST_F(StochasticCurvature, the_general_forms_read_the_batches_of_the_steps) {
  InnerOptions options;
  options.steps = 4;
  here = run_all_kept(oracle, x, w, options, batch);
  estimate("general-backward", 0, {});
  EXPECT_EQ(seeds(counting.calls().hessian), (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_EQ(seeds(counting.calls().cross), (std::vector<uint64_t>{3, 2, 1, 0}));
  estimate("general-forward", 0, {});
  EXPECT_EQ(seeds(counting.calls().hessian), (std::vector<uint64_t>{1, 2, 3}));
  ASSERT_EQ(counting.calls().cross.size(), 1U);
  EXPECT_TRUE(at::equal(counting.calls().cross[0].index, at::arange(40, 49)));
  for (const Batch& b : counting.calls().outer_gradient) EXPECT_TRUE(at::equal(b.index, at::arange(30, 37)));
}

TEST_F(StochasticCurvature, a_wrong_number_of_batches_is_an_error) {
  EXPECT_THAT([&] { estimate("neumann", 4, batches(3)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("3 were given")));
  EXPECT_THAT([&] { estimate("neumann", 4, batches(5)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("5 Hessian batches were given, but 4")));
  EXPECT_THROW(estimate("fixed-point", 4, batches(4)),
               std::invalid_argument);  // from zero it takes three products
  EXPECT_EQ(estimate("fixed-point", 4, batches(3)).counts.hessian, 3);
  for (const char* name : {"cg", "minres", "exact", "nystrom"}) {
    EXPECT_THAT([&] { estimate(name, 4, batches(4)); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("one fixed matrix")))
        << name;
  }
}

TEST(CurvatureOptions, names_what_is_wrong) {
  const auto expect = [](const std::function<void(CurvatureOptions&)>& spoil, const char* option) {
    NeumannEstimatorOptions options;
    spoil(options.curvature);
    EXPECT_THAT([&] { NeumannEstimator estimator(options); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(option)));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  expect([](CurvatureOptions& c) { c.kind = "fisher"; }, "curvature 'fisher'");
  for (const double bad : {-1.0, nan, infinity}) {
    expect([&](CurvatureOptions& c) { c.damping = bad; }, "damping = ");
    expect([&](CurvatureOptions& c) { c.difference_step = bad; }, "difference_step = ");
  }
  expect([](CurvatureOptions& c) { c.difference_step = 0; }, "difference_step = 0");
  expect([](CurvatureOptions& c) { c.kind = "gauss-newton", c.difference_hessian = true; },
         "difference_hessian");
  const Ridge ridge;
  Oracle oracle(ridge);
  EstimatorSettings settings;
  settings.curvature.kind = "gauss-newton";
  EXPECT_THAT(
      [&] {
        estimate_along("cg", settings, oracle, ridge.initial_outer(0), standing_at(random_vector(20, 1)));
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("gauss-newton")));
}

// Many unknowns take random signs for directions, whose length is not one: on a low-rank Hessian, and on one
// that is the same in every direction, the approximation is exact all the same.
TEST(Nystrom, is_exact_on_low_rank_and_on_flat_hessians_of_many_unknowns) {
  constexpr int64_t n = 200'000;
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    Tensor low_rank = at::zeros({n}, dtype);
    for (int64_t i = 0; i < 5; ++i) low_rank[40'000 * i] = 1.0 + static_cast<double>(i);
    const Tensor flat = at::full({n}, 2.0, dtype);
    const Tensor p = at::arange(n, dtype).mul(0.1).cos();
    for (const auto& [curvature, damping] : {std::pair(low_rank, 0.5), std::pair(flat, 0.0)}) {
      const Tensor h = curvature;
      const FunctionProblem problem(
          [&](const Tensor& w, const Tensor& x, const Batch&) {
            return 0.5 * (h * w * w).sum() + x[0] * w.sum();
          },
          [&](const Tensor& w, const Tensor&, const Batch&) { return (p * w).sum(); }, at::zeros({n}, dtype),
          at::zeros({1}, dtype));
      Oracle oracle(problem);
      NystromOptions options;
      options.rank = 10;
      options.curvature.damping = damping;
      InnerOptions inner;
      inner.steps = 0;
      const auto result = hypergradient_at(oracle, problem.initial_outer(0), problem.initial_inner(0), inner,
                                           NystromEstimator(options));
      EXPECT_EQ(result.hypergradient.status, Status::ok);
      EXPECT_LT(relative_error(result.hypergradient.solution, p / (h + damping)),
                dtype == at::kDouble ? 1e-10 : 1e-4);
      EXPECT_EQ(result.hypergradient.counts.hessian, 10);
    }
  }
}

}  // namespace
}  // namespace bilevel::test
