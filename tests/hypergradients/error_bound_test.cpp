// The bound that a hypergradient carries (hypergradients/bound.h): rigorous ones hold on thousands of random
// problems and with every estimator, and are not vacuous; estimated ones are never called rigorous.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bilevel/check/references.h"
#include "bilevel/core/weight_decay.h"
#include "bilevel/problems/hyper_cleaning.h"
#include "bilevel/problems/registry.h"
#include "bilevel/problems/regularized_softmax.h"
#include "bilevel/problems/softmax_constants.h"
#include "bilevel/problems/softmax_regression.h"
#include "bilevel/problems/weighted_softmax.h"
#include "tests/support.h"

namespace bilevel::test {
namespace {

using ::testing::HasSubstr;

// g = w'Hw / 2 + x'Cw + b'w,   f = (w-a)'O(w-a) / 2 + x'Dw + |x|^2 / 2, all of them random and known.
class RandomQuadratic : public Problem {
 public:
  RandomQuadratic(int64_t n, int64_t m, double condition, uint64_t seed) {
    Random random(seed);
    const Tensor basis = std::get<0>(at::linalg_qr(random.normal({n, n}, doubles())));
    Tensor eigenvalues = (random.uniform({n}, doubles()) * std::log(condition)).exp();
    eigenvalues[0] = 1;
    eigenvalues[n - 1] = condition;
    hessian_ = basis.mm(at::diag(eigenvalues)).mm(basis.t());
    cross_ = random.normal({m, n}, doubles());
    outer_cross_ = 0.1 * random.normal({m, n}, doubles());
    linear_ = random.normal({n}, doubles());
    target_ = random.normal({n}, doubles());
    const Tensor root = random.normal({n, n}, doubles());
    outer_ = root.t().mm(root) / n;
    start_ = random.normal({n}, doubles());
    outer_start_ = random.normal({m}, doubles());
    const Tensor singular = at::linalg_svdvals(cross_);
    constants_ = {.strong_convexity = 1,
                  .smoothness = condition,
                  .cross_norm = number(singular.max()),
                  .outer_x = number(at::linalg_svdvals(outer_cross_).max()),
                  .outer_w = number(at::linalg_eigvalsh(outer_).max())};
  }

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch&) const override {
    return 0.5 * w.dot(hessian_.mv(w)) + x.dot(cross_.mv(w)) + linear_.dot(w);
  }
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch&) const override {
    const Tensor gap = w - target_;
    return 0.5 * gap.dot(outer_.mv(gap)) + x.dot(outer_cross_.mv(w)) + 0.5 * x.dot(x);
  }
  Tensor initial_inner(uint64_t) const override { return start_; }
  Tensor initial_outer(uint64_t) const override { return outer_start_; }
  std::optional<LossConstants> loss_constants(const Tensor&) const override { return constants_; }

  // By hand: the test needs tens of thousands of gradients.
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch&) const override {
    return hessian_.mv(w) + cross_.t().mv(x) + linear_;
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return {outer_loss(w, x, batch), outer_.mv(w - target_) + outer_cross_.t().mv(x), outer_cross_.mv(w) + x};
  }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x, const Batch& b) const override {
    struct Constant : Linearization {
      Tensor g, h, c;
      Tensor gradient() override { return g; }
      Tensor hessian(const Tensor& v) override { return h.mv(v); }
      Tensor cross(const Tensor& v) override { return c.mv(v); }
      Tensor cross_transposed(const Tensor& u) override { return c.t().mv(u); }
    };
    auto result = std::make_unique<Constant>();
    result->g = inner_gradient(w, x, b);
    result->h = hessian_;
    result->c = cross_;
    return result;
  }

  Tensor exact(const Tensor& x) const {
    const Tensor w = solve_by(-(cross_.t().mv(x) + linear_));
    const auto outer = outer_gradients(w, x, {});
    return outer.x - cross_.mv(solve_by(outer.w));
  }
  // The rounding to be expected in an exact answer.
  double rounding(const Tensor& x) const {
    return 1e-13 * constants_.smoothness *
           (1 + length(exact(x)) + constants_.cross_norm * constants_.outer_w);
  }

 private:
  Tensor solve_by(const Tensor& right) const {
    return at::cholesky_solve(right.unsqueeze(1), at::linalg_cholesky(hessian_)).squeeze(1);
  }
  Tensor hessian_, cross_, outer_cross_, linear_, target_, outer_, start_, outer_start_;
  LossConstants constants_;
};

struct Drawn {
  std::string method;
  EstimatorSettings settings;
  InnerOptions inner;
};

// Any estimator with any settings, most inner loops plain and some not.
Drawn draw(Random& random, double largest_curvature) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random.uniform({1}, doubles()).item<double>() * static_cast<double>(n));
  };
  const auto& rows = estimator_rows();
  Drawn d;
  d.method = rows[static_cast<size_t>(below(static_cast<int64_t>(rows.size())))].name;
  d.settings.terms = below(30);
  d.settings.truncate = below(30);
  if (below(4) == 0) d.settings.curvature.damping = 0.1;
  if (below(4) == 0) d.settings.curvature.difference_mixed = true;
  d.inner.steps = below(5) == 0 ? 400 : below(100);
  d.inner.rate = (0.3 + 1.2 * random.uniform({1}, doubles()).item<double>()) / largest_curvature;
  if (below(5) == 0) d.inner.optimizer = "heavy-ball";
  if (below(10) == 0) d.inner.optimizer = "adam";
  if (d.inner.optimizer == "heavy-ball") d.inner.momentum = 0.5;
  return d;
}

Hypergradient bounded(Oracle& oracle, const Tensor& x, const Tensor& start, const Drawn& d) {
  return hypergradient_at(oracle, x, start, d.inner, *make_estimator(d.method, d.settings), true)
      .hypergradient;
}

double quantile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<size_t>(part * static_cast<double>(sorted.size() - 1))];
}
std::string distribution(const char* name, std::vector<double>& ratios) {
  std::sort(ratios.begin(), ratios.end());
  return fmt::format(
      "{}: bound / true error of {} estimates: least {:.3g}, 5 % {:.3g}, 25 % {:.3g}, median {:.3g}, 75 % "
      "{:.3g}, "
      "95 % {:.3g}, largest {:.3g}",
      name, ratios.size(), ratios.front(), quantile(ratios, 0.05), quantile(ratios, 0.25),
      quantile(ratios, 0.5), quantile(ratios, 0.75), quantile(ratios, 0.95), ratios.back());
}

TEST(ErrorBound, holds_on_thousands_of_random_quadratics_and_is_not_vacuous) {
  constexpr int problems = 3000;
  std::vector<double> ratios;
  for (int i = 0; i < problems; ++i) {
    Random random(named_seed(static_cast<uint64_t>(i), "bounds"));
    const Tensor u = random.uniform({3}, doubles());
    const auto n = 2 + static_cast<int64_t>(19 * number(u[0]));
    const auto m = 1 + static_cast<int64_t>(10 * number(u[1]));
    const double condition = 3 * std::pow(100.0 / 3, number(u[2]));
    const RandomQuadratic problem(n, m, condition, random.next());
    Oracle oracle(problem);
    const Drawn d = draw(random, condition);
    const Tensor x = problem.initial_outer(0);
    const Hypergradient h = bounded(oracle, x, problem.initial_inner(0), d);
    const double error = length(h.value - problem.exact(x));
    ASSERT_EQ(h.bound.kind, BoundKind::rigorous) << d.method << ": " << h.no_bound;
    const double rounding = problem.rounding(x);
    ASSERT_LE(error, h.bound.value + rounding) << i << " " << d.method << ", condition " << condition;
    if (error > 1e4 * rounding) ratios.push_back(h.bound.value / error);
  }
  const std::string shown = distribution("quadratics of condition 3 to 100", ratios);
  fmt::print("{}\n", shown);
  EXPECT_GT(ratios.size(), problems * 8U / 10);
  EXPECT_LE(quantile(ratios, 0.5), 20) << shown;
  EXPECT_GE(ratios.front(), 1) << shown;
}

std::unique_ptr<Problem> random_softmax(int kind, uint64_t seed, double regularization) {
  const GaussianClassesOptions data{.classes = 3, .features = 4, .separation = 1, .unit_rows = kind % 2 == 0};
  const auto options = doubles();
  if (kind == 0)
    return std::make_unique<SoftmaxRegression>(SoftmaxRegressionOptions{data, 20, 20, seed, options});
  if (kind == 1) {
    const auto train = draw_gaussian_classes(data, 20, seed, "train");
    const auto valid = draw_gaussian_classes(data, 20, seed, "valid");
    return std::make_unique<RegularizedSoftmax>(LabelledRows{dense_rows(train.features), train.labels},
                                                LabelledRows{dense_rows(valid.features), valid.labels}, 3);
  }
  SyntheticCleaningOptions cleaning{.data = data, .samples = 20, .valid_samples = 20};
  const CleaningData drawn = draw_cleaning_data(cleaning, seed);
  if (kind == 2) return std::make_unique<HyperCleaning>(drawn, regularization, options);
  return std::make_unique<WeightedSoftmax>(drawn, regularization, options);
}

TEST(ErrorBound, holds_on_random_softmax_problems) {
  constexpr int problems = 400;
  std::vector<double> ratios;
  for (int i = 0; i < problems; ++i) {
    Random random(named_seed(static_cast<uint64_t>(i), "softmax bounds"));
    const double regularization = 0.005 * std::pow(40.0, number(random.uniform({1}, doubles())[0]));
    const auto problem = random_softmax(i % 4, static_cast<uint64_t>(i), regularization);
    Tensor x = problem->initial_outer(0);
    x = x + random.normal(x.sizes(), doubles());
    const double smoothness = problem->loss_constants(x)->smoothness;
    Oracle oracle(*problem);
    Drawn d = draw(random, smoothness);
    if (d.method == "forward" && d.inner.steps > 20) d.inner.steps = 20;  // it takes T m products
    const Tensor start = random_vector(problem->initial_inner(0).numel(), random.next());
    const Hypergradient h = bounded(oracle, x, start, d);
    const ImplicitReference exact = implicit_reference(oracle, x, problem->initial_inner(0));
    ASSERT_TRUE(exact.value.defined()) << exact.why;
    const double error = length(h.value - exact.value);
    ASSERT_EQ(h.bound.kind, BoundKind::rigorous) << d.method << ": " << h.no_bound;
    ASSERT_LE(error, h.bound.value + 1e-11 * (1 + length(exact.value))) << i << " " << d.method;
    if (error > 1e-8 * length(exact.value)) ratios.push_back(h.bound.value / error);
  }
  const std::string shown = distribution("softmax regression", ratios);
  fmt::print("{}\n", shown);
  EXPECT_GT(ratios.size(), problems / 2U);
  EXPECT_GE(ratios.front(), 1) << shown;
}

// Each constant against what is measured between random points.
TEST(ErrorBound, the_problems_constants_hold_at_random_points) {
  std::vector<std::unique_ptr<Problem>> problems;
  for (int kind = 0; kind < 4; ++kind) problems.push_back(random_softmax(kind, 3, 0.05));
  for (const char* name : {"quadratic", "ridge", "toy", "toy-interfering", "counterexample"}) {
    problems.push_back(std::move(make_problem(name, {}).problem));
  }
  for (size_t k = 0; k < problems.size(); ++k) {
    const Problem& problem = *problems[k];
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Tensor x = problem.initial_outer(0) + 0.5 * random_like(problem.initial_outer(0), seed);
      const Tensor a = 2 * random_like(problem.initial_inner(0), 100 + seed);
      const Tensor b = a + 0.3 * random_like(a, 200 + seed);
      const LossConstants c = problem.loss_constants(x).value();
      const Dense at_a = dense_at(problem, a, x), at_b = dense_at(problem, b, x);
      const double distance = length(b - a), slack = 1 + 1e-9;
      const auto norm = [](const Tensor& matrix) { return number(at::linalg_svdvals(matrix).max()); };
      const Tensor eigenvalues = at::linalg_eigvalsh(at_a.hessian);
      EXPECT_GE(number(eigenvalues.min()) * slack, c.strong_convexity) << k;
      EXPECT_LE(number(eigenvalues.max()), c.smoothness * slack) << k;
      EXPECT_LE(norm(at_a.cross), c.cross_norm * slack) << k;
      const double tiny = 1e-9 * (1 + c.smoothness);
      EXPECT_LE(norm(at_b.hessian - at_a.hessian), c.hessian * distance * slack + tiny) << k;
      EXPECT_LE(norm(at_b.cross - at_a.cross), c.cross * distance * slack + tiny) << k;
      EXPECT_LE(length(at_b.p - at_a.p), c.outer_w * distance * slack + tiny) << k;
      EXPECT_LE(length(at_b.direct - at_a.direct), c.outer_x * distance * slack + tiny) << k;
    }
  }
}

TEST(ErrorBound, a_gram_matrix_too_large_to_assemble_is_still_bounded_from_above) {
  Random random(4);
  const Tensor dense =
      random.uniform({1500, 1200}, doubles()) * (random.uniform({1500, 1200}, doubles()) < 0.05);
  const Tensor weights = random.uniform({1500}, doubles());
  const double truth = number(at::linalg_eigvalsh(dense.t().mm(dense * weights.unsqueeze(1))).max());
  for (const auto storage : {FeatureMatrix::Storage::dense, FeatureMatrix::Storage::sparse}) {
    const double bound = largest_gram_bound(FeatureMatrix::from_dense(dense, storage), weights);
    EXPECT_GE(bound, truth);
    EXPECT_LE(bound, 1.1 * truth);
  }
}

// A problem that keeps its constants to itself.
class Unknown : public WithWeightDecay {
 public:
  explicit Unknown(const Problem& base) : WithWeightDecay(base, 0) {}
  std::optional<LossConstants> loss_constants(const Tensor&) const override { return std::nullopt; }
};

TEST(ErrorBound, without_constants_it_is_called_estimated_and_is_of_the_right_size) {
  std::vector<double> ratios;
  for (int i = 0; i < 120; ++i) {
    const auto problem = random_softmax(i % 4, static_cast<uint64_t>(i), 0.05);
    const Unknown unknown(*problem);
    Oracle oracle(unknown);
    const Tensor x = problem->initial_outer(0);
    Random random(named_seed(static_cast<uint64_t>(i), "estimated"));
    Drawn d = draw(random, problem->loss_constants(x)->smoothness);
    if (d.method == "forward" && d.inner.steps > 20) d.inner.steps = 20;
    const Hypergradient h = bounded(oracle, x, problem->initial_inner(0), d);
    ASSERT_EQ(h.bound.kind, BoundKind::estimated) << h.no_bound;
    const ImplicitReference exact = implicit_reference(oracle, x, problem->initial_inner(0));
    const double error = length(h.value - exact.value);
    if (error > 1e-8 * length(exact.value)) ratios.push_back(h.bound.value / error);
  }
  fmt::print("{}\n", distribution("softmax regression, estimated constants", ratios));
  EXPECT_GT(quantile(ratios, 0.05), 0.8);  // it is no promise, but nearly always above the error
  EXPECT_LT(quantile(ratios, 0.5), 100);
}

TEST(ErrorBound, without_positive_curvature_there_is_none_and_it_says_why) {
  const NamedProblem mlp = make_problem("mlp", {});
  Oracle oracle(*mlp.problem);
  const Tensor x = mlp.problem->initial_outer(0);
  const Hypergradient h =
      bounded(oracle, x, mlp.problem->initial_inner(0), {"cg", {}, {.steps = 3, .rate = 0.1}});
  EXPECT_EQ(h.bound.kind, BoundKind::none);
  EXPECT_TRUE(std::isnan(h.bound.value));
  EXPECT_THAT(h.no_bound, HasSubstr("eigenvalue"));
}

TEST(ErrorBound, minibatches_are_bounded_against_the_full_sets) {
  for (const char* method : {"neumann", "reverse", "t1t2", "one-step"}) {
    const auto problem = random_softmax(3, 5, 0.1);
    Oracle oracle(*problem);
    const Tensor x = problem->initial_outer(0);
    const auto estimator = make_estimator(method, {});
    InnerRun run;
    run.options = {.steps = 30, .rate = 0.3};
    run.keep = estimator->keeps(30, 0);
    run.measure_gradient = false;
    run.batches = [](int64_t t) { return Batch{at::arange(t % 5, t % 5 + 8)}; };
    Trajectory inner = run_inner(oracle, x, problem->initial_inner(0), run);
    HypergradientRequest request{.x = x, .inner = inner, .with_bound = true};
    request.outer = request.cross = Batch{at::arange(0, 10)};
    request.hessian = {Batch{at::arange(5, 15)}};
    const Hypergradient h = estimator->estimate(oracle, request);
    const ImplicitReference exact = implicit_reference(oracle, x, problem->initial_inner(0));
    EXPECT_EQ(h.bound.kind, BoundKind::rigorous) << method;
    EXPECT_LE(length(h.value - exact.value), h.bound.value) << method;
    EXPECT_EQ(h.bound_counts.outer_gradient, 1) << method;  // the request's was on a batch
    EXPECT_EQ(h.bound_counts.inner_gradient, 1) << method;
    EXPECT_EQ(h.bound_counts.hessian, 1) << method;
    EXPECT_EQ(h.bound_counts.cross, 1) << method;
  }
}

TEST(ErrorBound, is_not_made_unless_it_is_asked_for_and_changes_nothing) {
  const NamedProblem ridge = make_problem("ridge", {});
  Oracle oracle(*ridge.problem);
  const Tensor x = ridge.problem->initial_outer(0), w = ridge.problem->initial_inner(0);
  for (const EstimatorRow& row : estimator_rows()) {
    const auto estimator = make_estimator(row.name, {});
    const InnerOptions inner{.steps = 20, .rate = 0.1};
    const Hypergradient plain = hypergradient_at(oracle, x, w, inner, *estimator).hypergradient;
    const Hypergradient with = hypergradient_at(oracle, x, w, inner, *estimator, true).hypergradient;
    EXPECT_EQ(plain.bound.kind, BoundKind::none) << row.name;
    EXPECT_EQ(plain.bound_counts.hessian, 0) << row.name;
    EXPECT_EQ(with.bound.kind, BoundKind::rigorous) << row.name;
    EXPECT_TRUE(plain.value.equal(with.value)) << row.name;
    EXPECT_EQ(plain.counts.hessian, with.counts.hessian) << row.name;
    EXPECT_EQ(plain.solution.defined(), with.solution.defined()) << row.name;
  }
}

}  // namespace
}  // namespace bilevel::test
