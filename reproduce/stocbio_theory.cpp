// stocBiO's theory (Ji, Yang and Liang 2021) on problems small enough to know everything of: Proposition 3's
// bias and variance, and what the batches of Theorems 3 and 4 leave. The orders in kappa and epsilon of
// Tables 1 and 2 are in stocbio_orders.cpp.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/algorithms/stocbio.h"
#include "bilevel/core/random.h"
#include "bilevel/hypergradients/neumann.h"
#include "bilevel/hypergradients/reverse.h"
#include "bilevel/problems/ridge.h"
#include "reproduce/items.h"
#include "reproduce/orders.h"

namespace bilevel::reproduce {
namespace {

bool near_minus_one(double slope) { return std::abs(slope + 1) < 0.15; }

// ---- Proposition 3 ----

// The series at the solution of a ridge regression, where the inverse is known. L is that of the worst
// example, as the proposition wants it, so that every product with a batch is stable.
struct Series {
  Ridge ridge;
  Tensor x, w, limit;  // limit: H^-1 grad f
  double L, mu, M;     // M: the longest gradient of f for one example
  explicit Series(uint64_t seed)
      : ridge({.features = 10, .samples = 20000, .valid_samples = 2000, .initial_log = 0, .seed = seed}) {
    x = ridge.initial_outer(0);
    w = ridge.solution(x);
    const Tensor& a = ridge.matrix();
    const Tensor H = a.t().matmul(a) / static_cast<double>(a.size(0)) + x.exp().diag();
    const Tensor residual = ridge.valid_matrix().matmul(w) - ridge.valid_target();
    const Tensor p = ridge.valid_matrix().t().matmul(residual) / static_cast<double>(residual.numel());
    limit = at::linalg_solve(H, p.unsqueeze(1)).squeeze(1);
    L = (a.square().sum(1).max() + x.exp().max()).item<double>();
    mu = at::linalg_eigvalsh(H).min().item<double>();
    M = (ridge.valid_matrix() * residual.unsqueeze(1)).norm(2, 1).max().item<double>();
  }
  double rate() const { return 1 / L; }
};

Batch draw(Random& random, int64_t population, int64_t size) {
  Tensor index = at::empty({size}, at::kLong);
  for (int64_t i = 0; i < size; ++i) index.data_ptr<int64_t>()[i] = random.below(population);
  return {.index = index, .seed = 0};
}

// v_Q with Hessian products on batches of these sizes and f on `outer` examples; 0 = the full set.
Tensor series_vector(const Series& s, const std::vector<int64_t>& hessian, int64_t outer, Random& random) {
  Oracle oracle(s.ridge);
  const Trajectory inner =
      run_inner(oracle, s.x, s.w, {.options = {.steps = 0, .rate = s.rate()}, .keep = {}, .batches = {}});
  HypergradientRequest request{.x = s.x, .inner = inner};
  if (outer > 0) request.outer = draw(random, s.ridge.outer_samples(), outer);
  for (const int64_t size : hessian) {
    request.hessian.push_back(size == 0 ? Batch{} : draw(random, s.ridge.inner_samples(), size));
  }
  const NeumannEstimator series(
      {.terms = static_cast<int64_t>(hessian.size()), .rate = s.rate(), .curvature = {}});
  return series.estimate(oracle, request).solution;
}

Json bias(const Series& s, Json& claims) {
  Random unused(0);
  Json rows = Json::array();
  bool holds = true;
  std::vector<double> found;
  for (const int64_t Q : {0, 5, 10, 20, 40, 80, 160}) {
    // The batches are independent, so that the mean of v_Q is the series with the full sets.
    const Tensor v = series_vector(s, std::vector<int64_t>(static_cast<size_t>(Q), 0), 0, unused);
    found.push_back((v - s.limit).norm().item<double>());
    const double bound = std::pow(1 - s.rate() * s.mu, static_cast<double>(Q + 1)) * s.M / s.mu;
    holds = holds && found.back() <= bound;
    rows.push_back({{"Q", Q}, {"bias", found.back()}, {"bound (8)", bound}});
  }
  const double theory = 1 - s.rate() * s.mu,
               fall = std::pow(found.back() / found[found.size() - 2], 1.0 / 80);
  claims.push_back(
      claim("Proposition 3: the bias of v_Q is below (8) and falls by 1 - eta mu for each product",
            holds && std::abs(fall - theory) < 0.002,
            fmt::format("it falls by {:.4f} between Q = 80 and 160; 1 - eta mu = {:.4f}", fall, theory)));
  return table("Proposition 3, eq. 8: |E v_Q - H^-1 grad f|", rows);
}

// Mean squared distance of v_Q from its limit and from its mean, over independent draws.
struct Spread {
  double error = 0, variance = 0;
};
Spread spread_of(const Series& s, const std::vector<int64_t>& hessian, int64_t outer, int64_t draws,
                 const Tensor& mean, Random& random) {
  Mean error, variance;
  for (int64_t i = 0; i < draws; ++i) {
    const Tensor v = series_vector(s, hessian, outer, random);
    error.add(squared(v - s.limit));
    variance.add(squared(v - mean));
  }
  return {error.value(), variance.value()};
}

Json variance(const Series& s, int64_t draws, Json& claims) {
  constexpr int64_t Q = 40;
  Random random(1);
  const std::vector<int64_t> full(static_cast<size_t>(Q), 0);
  const Tensor mean = series_vector(s, full, 0, random);
  const double tail = 4 * std::pow(1 - s.rate() * s.mu, 2.0 * Q + 2) * s.M * s.M / (s.mu * s.mu);
  Json rows = Json::array();
  Order by_B, by_D;
  bool holds = true;
  double decaying_at_8 = 0;
  int64_t samples_at_8 = 0;
  for (const int64_t B : {2, 4, 8, 16, 32}) {
    const Stocbio stocbio(
        {.terms = Q, .linear_rate = s.rate(), .strong_convexity = s.mu, .hessian_batch = B});
    std::vector<int64_t> sizes;
    int64_t samples = 0;
    for (int64_t k = 0; k < Q; ++k) {
      sizes.push_back(stocbio.batch_of_product(k, s.rate(), 0));
      samples += sizes.back();
    }
    const Spread found = spread_of(s, sizes, 0, draws, mean, random);
    const double bound = 4 * std::pow(s.rate() * s.L * s.M / s.mu, 2) / static_cast<double>(B) + tail;
    holds = holds && found.error <= bound;
    by_B.add(static_cast<double>(B), found.variance);
    if (B == 8) {
      decaying_at_8 = found.variance;
      samples_at_8 = samples;
    }
    rows.push_back({{"varied", "B"},
                    {"size", B},
                    {"error", found.error},
                    {"variance", found.variance},
                    {"bound (9)", bound}});
  }
  for (const int64_t D : {4, 16, 64, 256}) {
    const Spread found = spread_of(s, full, D, std::min<int64_t>(draws, 200), mean, random);
    const double bound = tail + 2 * s.M * s.M / (s.mu * s.mu * static_cast<double>(D));
    holds = holds && found.error <= bound;
    by_D.add(static_cast<double>(D), found.variance);
    rows.push_back({{"varied", "D_f"},
                    {"size", D},
                    {"error", found.error},
                    {"variance", found.variance},
                    {"bound (9)", bound}});
  }
  claims.push_back(
      claim("Proposition 3: E |v_Q - H^-1 grad f|^2 is below (9)", holds,
            fmt::format("{} draws of each B from 2 to 32 and D_f from 4 to 256, Q = {}", draws, Q)));
  claims.push_back(claim("Proposition 3: the variance is of order 1 / B and 1 / D_f",
                         near_minus_one(by_B.slope()) && near_minus_one(by_D.slope()),
                         fmt::format("slopes {:.3f} and {:.3f}", by_B.slope(), by_D.slope())));
  const std::vector<int64_t> uniform(static_cast<size_t>(Q), samples_at_8 / Q);
  const double even = spread_of(s, uniform, 0, draws, mean, random).variance;
  claims.push_back(
      claim("batches that shrink along the series have less variance than even ones of as many samples",
            decaying_at_8 < even,
            fmt::format("{:.3g} against {:.3g} with {} samples", decaying_at_8, even, samples_at_8)));
  return table(fmt::format("Proposition 3, eq. 9: v_{} over {} draws", Q, draws), rows);
}

// ---- Theorems 3 and 4: what a batch leaves ----

// x pushes the solution of a regression, so that Phi is a quadratic with one minimum and known gradients:
//     g = |A w - b|^2 / (2N) + |w|^2 / 2 - w'x,    f = |C w - d|^2 / (2N),    w* = H^-1 (A'b / N + x)
class PushedRegression : public Problem {
 public:
  PushedRegression(int64_t features, int64_t samples, uint64_t seed) {
    Random random(seed);
    a_ = random.normal({samples, features}, doubles);
    c_ = random.normal({samples, features}, doubles);
    b_ = random.normal({samples}, doubles);
    d_ = c_.matmul(random.normal({features}, doubles)) + random.normal({samples}, doubles);
    curvature_ = a_.t().matmul(a_) / static_cast<double>(samples) + at::eye(features, doubles);
  }
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return half_square(a_, b_, w, batch) + w.dot(w) / 2 - w.dot(x);
  }
  Tensor outer_loss(const Tensor& w, const Tensor&, const Batch& batch) const override {
    return half_square(c_, d_, w, batch);
  }
  Tensor initial_inner(uint64_t) const override { return at::zeros({a_.size(1)}, doubles); }
  Tensor initial_outer(uint64_t) const override { return at::zeros({a_.size(1)}, doubles); }
  int64_t inner_samples() const override { return a_.size(0); }
  int64_t outer_samples() const override { return a_.size(0); }

  Tensor solution(const Tensor& x) const {
    return solve(a_.t().matmul(b_) / static_cast<double>(b_.numel()) + x);
  }
  Tensor gradient(const Tensor& x) const {  // of Phi
    return solve(c_.t().matmul(c_.matmul(solution(x)) - d_) / static_cast<double>(d_.numel()));
  }
  // Above the curvature of g on any batch.
  double worst_curvature() const { return 1 + a_.square().sum(1).max().item<double>(); }

 private:
  static Tensor half_square(const Tensor& matrix, const Tensor& target, const Tensor& w, const Batch& batch) {
    if (batch.is_full()) return (matrix.matmul(w) - target).square().mean() / 2;
    return (matrix.index_select(0, batch.index).matmul(w) - target.index_select(0, batch.index))
               .square()
               .mean() /
           2;
  }
  Tensor solve(const Tensor& right) const {
    return at::linalg_solve(curvature_, right.unsqueeze(1)).squeeze(1);
  }
  Tensor a_, b_, c_, d_, curvature_;
};

Tensor mean_gradient(const std::vector<PushedRegression>& tasks, const Tensor& x) {
  Tensor sum = at::zeros_like(x);
  for (const PushedRegression& task : tasks) sum += task.gradient(x);
  return sum / static_cast<double>(tasks.size());
}

// From there only the batches' noise shows.
Tensor stationary_point(const std::vector<PushedRegression>& tasks) {
  Tensor x = tasks.front().initial_outer(0);
  for (int64_t i = 0; i < 400; ++i) x = x - mean_gradient(tasks, x);
  return x;
}

Json theorem3(int64_t iterations, const ReproduceOptions& options, Json& claims) {
  const std::vector<PushedRegression> one = {PushedRegression(10, 20000, options.seed)};
  const PushedRegression& problem = one.front();
  const double rate = 1 / problem.worst_curvature();
  const Tensor start = stationary_point(one);
  Json rows = Json::array();
  Order order;
  for (const int64_t size : {8, 32, 128, 512}) {
    options.progress(fmt::format("theorem 3, batches of {}", size));
    const Stocbio stocbio({.inner = {.steps = 20, .rate = rate},
                           .outer = {.optimizer = "sgd", .rate = 0.3},
                           .terms = 40,
                           .linear_rate = rate});
    SolveOptions run{
        .iterations = iterations, .records = iterations, .keep_points = true, .seed = options.seed};
    run.batches = {.inner_batch = size, .outer_batch = size};
    const SolveSummary summary = solve(problem, stocbio, run, {}, start, problem.solution(start));
    Mean mean;
    for (const SolveRecord& record : summary.records) {
      if (2 * record.iteration >= iterations) mean.add(squared(problem.gradient(record.x)));
    }
    order.add(static_cast<double>(size), mean.value());
    rows.push_back({{"S = D_f = D_g = B", size}, {"mean |grad Phi|^2", mean.value()}});
  }
  claims.push_back(
      claim("Theorem 3: at a constant rate the mean of |grad Phi|^2 stays at the order of 1 / batch",
            near_minus_one(order.slope()),
            fmt::format("slope {:.3f} between batches of 8 and 512", order.slope())));
  return table(fmt::format("Theorem 3: the second half of {} iterations from the minimum", iterations), rows);
}

Json theorem4(int64_t iterations, const ReproduceOptions& options, Json& claims) {
  constexpr int64_t tasks_in_all = 40, steps = 20;
  std::vector<PushedRegression> tasks;
  for (int64_t i = 0; i < tasks_in_all; ++i) {
    tasks.emplace_back(5, 50, options.seed + 100 + static_cast<uint64_t>(i));
  }
  const Tensor start = stationary_point(tasks);
  const Reverse reverse;
  Json rows = Json::array();
  Order order;
  for (const int64_t size : {1, 2, 4, 8}) {
    options.progress(fmt::format("theorem 4, {} of {} tasks", size, tasks_in_all));
    Random random(options.seed + 7);
    Tensor x = start;
    Mean mean;
    for (int64_t k = 0; k < iterations; ++k) {
      Tensor sum = at::zeros_like(x);
      for (int64_t i = 0; i < size; ++i) {
        const PushedRegression& task = tasks[static_cast<size_t>(random.below(tasks_in_all))];
        Oracle oracle(task);
        sum += hypergradient_at(oracle, x, task.initial_inner(0), {.steps = steps, .rate = 0.3}, reverse)
                   .hypergradient.value;
      }
      x = x - 0.3 * sum / static_cast<double>(size);
      if (2 * k >= iterations) mean.add(squared(mean_gradient(tasks, x)));
    }
    order.add(static_cast<double>(size), mean.value());
    rows.push_back({{"|B|, tasks", size}, {"mean |grad Phi|^2", mean.value()}});
  }
  claims.push_back(
      claim("Theorem 4: drawing tasks leaves a mean of |grad Phi|^2 of order 1 / |B|",
            near_minus_one(order.slope()),
            fmt::format("slope {:.3f} between 1 and 8 of {} tasks", order.slope(), tasks_in_all)));
  return table(
      fmt::format("Theorem 4: ITD-BiO with T = {}, the second half of {} iterations", steps, iterations),
      rows);
}

}  // namespace

Json stocbio_theory(const ReproduceOptions& options) {
  Json claims = Json::array(), tables = Json::array();
  const Series series(options.seed);
  options.progress("proposition 3");
  tables.push_back(bias(series, claims));
  tables.push_back(variance(series, options.full() ? 2000 : 300, claims));
  tables.push_back(theorem3(options.full() ? 8000 : 1000, options, claims));
  tables.push_back(theorem4(options.full() ? 10000 : 2000, options, claims));
  tables.push_back(deterministic_orders(options, claims));
  tables.push_back(stochastic_orders(options, claims));
  return {
      {"tables", tables},
      {"claims", claims},
      {"notes",
       Json::array({"ITD-BiO: orders in 1/epsilon beside the factor log(1/epsilon). Theorems are upper "
                    "bounds: a smaller order on these quadratics agrees with them. M is the longest gradient "
                    "of one example of f at the point, L the largest curvature of one example."})}};
}

}  // namespace bilevel::reproduce
