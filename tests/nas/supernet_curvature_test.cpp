// The theory on a supernet: with the damped Gauss-Newton matrix implicit estimates converge to the exact
// inverse of that matrix as iDARTS's Theorem 1 says; with the plain Hessian they meet negative curvature and
// say so. And the ways in which a search evaluates its products.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bilevel/core/spectrum.h"
#include "bilevel/core/weight_decay.h"
#include "tests/nas/small_supernet.h"

namespace bilevel::nas {
namespace {

using test::length;
using test::number;
using test::relative_error;
using test::standing_at;

// After a few steps of training, where neither loss is at rest.
class SupernetCurvature : public ::testing::Test {
 protected:
  static constexpr double decay = 5e-4, damping = 1;

  SupernetCurvature()
      : supernet(synthetic_supernet(small_supernet())), problem(supernet, decay), oracle(problem) {
    x = problem.initial_outer(1);
    x = x + 0.3 * test::random_like(x, 2);
    InnerLoop run;
    run.options = {.optimizer = "gd", .steps = 10, .rate = 0.025};
    w = run_inner(oracle, x, problem.initial_inner(1), run).final.w;
    settings.curvature.kind = "gauss-newton";
    settings.curvature.damping = damping;
  }
  Hypergradient estimate(const std::string& name, const EstimatorSettings& with) {
    return test::estimate_along(name, with, oracle, x, standing_at(w, 0.025));
  }
  Tensor dense(const std::string& kind) {
    const auto here = oracle.linearize(w, x, {});
    return assemble(
        [&](const Tensor& v) { return kind == "hessian" ? here->hessian(v) : here->gauss_newton(v); },
        w.numel(), w.options());
  }

  SupernetProblem supernet;
  WithWeightDecay problem;
  Oracle oracle;
  Tensor x, w;
  EstimatorSettings settings;
};

TEST_F(SupernetCurvature, WithGaussNewtonTheSeriesFallsAsTheorem1Says) {
  const Tensor matrix = dense("gauss-newton") + damping * at::eye(w.numel(), w.options());
  const Tensor values = std::get<0>(at::linalg_eigh(matrix));
  const double mu = number(values.min()), largest = number(values.max());
  EXPECT_NEAR(mu, damping + decay, 1e-9);  // the regulariser's Hessian is part of Gauss-Newton

  const OuterGradients outer = oracle.outer_gradients(w, x, {});
  const auto here = oracle.linearize(w, x, {});
  std::vector<Tensor> columns;  // of C', one for each entry of x
  for (int64_t i = 0; i < x.numel(); ++i) {
    Tensor unit = at::zeros_like(x);
    unit[i] = 1;
    columns.push_back(here->cross_transposed(unit));
  }
  const Tensor cross = at::stack(columns);
  const Tensor exact = outer.x - cross.mv(test::solve(matrix, outer.w));
  EXPECT_LT(relative_error(estimate("exact", settings).value, exact), 1e-11);

  settings.linear_rate = 1 / largest;
  const double shrink = 1 - mu / largest;
  const double scale = number(at::linalg_svdvals(cross).max()) * length(outer.w) / mu;
  double before = std::numeric_limits<double>::infinity();
  for (const int64_t terms : {0, 1, 2, 3, 5, 10, 20, 40}) {
    settings.terms = terms;
    const double bound = scale * std::pow(shrink, terms + 1);  // |C| |p| / mu (1 - rate mu)^(K+1)
    const Hypergradient h = estimate("neumann", settings);
    EXPECT_EQ(h.status, Status::ok);
    const double error = length(h.value - exact);
    EXPECT_LE(error, bound) << "K = " << settings.terms;
    EXPECT_LT(error, before) << "K = " << settings.terms;
    before = error;
  }
  EXPECT_LT(before, 0.5 * length(exact - outer.x));

  settings.terms = w.numel();
  settings.relative_tolerance = 1e-12;
  for (const char* name : {"cg", "minres"}) {
    const Hypergradient h = estimate(name, settings);
    EXPECT_EQ(h.status, Status::converged) << name;
    EXPECT_LT(relative_error(h.value, exact), 1e-10) << name;
    EXPECT_LT(h.iterations, w.numel() / 4) << name;  // few eigenvalues differ: twelve images, ten classes
  }
}

TEST_F(SupernetCurvature, ThePlainHessianIsNotPositiveAndTheStatusSaysSo) {
  const Tensor values = std::get<0>(at::linalg_eigh(dense("hessian")));
  EXPECT_LT(number(values.min()), -1e-2 * number(values.max()));
  settings.curvature = {};
  settings.terms = 200;
  settings.linear_rate = 1 / number(values.max());
  EXPECT_EQ(estimate("cg", settings).status, Status::negative_curvature);
  EXPECT_EQ(estimate("exact", settings).status, Status::negative_curvature);
  const Status series = estimate("neumann", settings).status;
  EXPECT_TRUE(series == Status::negative_curvature || series == Status::diverged) << name_of(series);
  // A longer series is a worse one.
  settings.terms = 20;
  const double short_series = length(estimate("neumann", settings).value);
  settings.terms = 400;
  EXPECT_GT(length(estimate("neumann", settings).value), 10 * short_series);
  // Damping beyond the negative eigenvalues makes it positive.
  settings.curvature.damping = 1.1 * -number(values.min());
  settings.terms = 10 * w.numel();
  settings.relative_tolerance = 1e-11;
  const Hypergradient damped = estimate("cg", settings);
  EXPECT_EQ(damped.status, Status::converged);
  EXPECT_LT(relative_error(damped.value, estimate("exact", settings).value), 1e-8);
}

// iDARTS's public code moves the weights for the difference and does not bring all of them back.
TEST_F(SupernetCurvature, ACentralDifferenceLeavesTheWeightsAndErrsByTheStepSquared) {
  const Tensor before = w.clone();
  const auto version = w._version();
  settings.terms = 2;
  settings.linear_rate = 0.01;
  const Hypergradient exact = estimate("neumann", settings);
  settings.curvature.difference_cross = true;
  std::vector<double> errors;
  for (const double step : {4e-4, 2e-4, 1e-4}) {
    settings.curvature.difference_step = step;
    const Hypergradient difference = estimate("neumann", settings);
    EXPECT_EQ(difference.counts.cross, 0);
    EXPECT_EQ(difference.counts.inner_gradient, 2);
    errors.push_back(length(difference.value - exact.value) / length(exact.value - exact.direct));
  }
  EXPECT_NEAR(errors[0] / errors[1], 4, 0.2);
  EXPECT_NEAR(errors[1] / errors[2], 4, 0.2);
  EXPECT_TRUE(w.equal(before));
  EXPECT_EQ(w._version(), version);
}

// Weights that are trained for random architectures have no alpha in them.
TEST_F(SupernetCurvature, WithArchitecturesDrawnEvenlyOnlyTheDirectTermIsLeft) {
  supernet.set_sampling(Sampling::uniform);
  EXPECT_FALSE(problem.inner_loss_uses_outer());
  const Trajectory inner =
      test::run_all_kept(oracle, x, w, {.optimizer = "nesterov", .steps = 2, .rate = 0.025});
  settings.terms = 2;
  for (const EstimatorRow& row : estimator_rows()) {
    if (row.name.rfind("general", 0) == 0) continue;  // Lemma 2 is about plain gradient descent
    const OracleCounts counts = oracle.counts();
    const Hypergradient h = test::estimate_along(row.name, settings, oracle, x, inner);
    EXPECT_TRUE(h.value.equal(h.direct)) << row.name;
    EXPECT_EQ((oracle.counts() - counts).cross, 0) << row.name;
  }
  supernet.set_sampling(Sampling::gumbel, 2);
  EXPECT_TRUE(problem.inner_loss_uses_outer());
  const Hypergradient h = test::estimate_along("neumann", settings, oracle, x, inner);
  EXPECT_GT(relative_error(h.value, h.direct), 1e-6);
}

}  // namespace
}  // namespace bilevel::nas
