// stocBiO (Ji, Yang and Liang 2021), tables 1 and 2: how the numbers of gradients and products that lead to
// an epsilon-stationary point grow with kappa and 1/epsilon, on quadratics whose Phi is known.

#include "reproduce/orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/algorithms/stocbio.h"
#include "bilevel/core/random.h"

namespace bilevel::reproduce {
namespace {

// ---- Theorems 1 and 2 (table 1) ----

// g = w'Hw/2 - w'x with eigenvalues of H from 1 / kappa to 1, f = |w - t|^2 / 2: Phi has curvature kappa^2.
struct Counts {
  double iterations = 0, outer = 0, inner = 0, cross = 0, hessian = 0;
};
Counts counts_of(const std::string& algorithm, double kappa, double epsilon) {
  constexpr int64_t n = 10;
  const Tensor h = at::linspace(-std::log(kappa), 0, n, doubles).exp();
  const Tensor target = at::ones({n}, doubles) / std::sqrt(static_cast<double>(n));
  const FunctionProblem problem(
      [h](const Tensor& w, const Tensor& x, const Batch&) { return (h * w).dot(w) / 2 - w.dot(x); },
      [target](const Tensor& w, const Tensor&, const Batch&) { return (w - target).square().sum() / 2; },
      at::zeros({n}, doubles), at::zeros({n}, doubles));
  AlgorithmSettings settings;
  settings.inner = {.steps = static_cast<int64_t>(std::ceil(kappa)), .rate = 1};
  settings.outer = {.optimizer = "sgd", .rate = 1 / (kappa * kappa)};
  settings.hypergradient.terms = static_cast<int64_t>(std::ceil(std::sqrt(kappa)));
  if (algorithm == "itd") {
    settings.inner.steps = static_cast<int64_t>(std::ceil(kappa * std::log(1 / epsilon)));
  }
  // Theorem 1's own measure: the first K for which the mean of |grad Phi(x_k)|^2 is at most epsilon.
  const auto most = static_cast<int64_t>(kappa * kappa / epsilon);
  SolveOptions run{.iterations = most, .records = most, .keep_points = true};
  const SolveSummary summary = solve(problem, *make_algorithm(algorithm, settings), run);
  double sum = 0;
  for (size_t k = 0; k < summary.records.size(); ++k) {
    const SolveRecord& record = summary.records[k];
    sum += squared((record.x / h - target) / h);
    const auto so_many = static_cast<double>(k + 1);
    if (sum / so_many > epsilon) continue;
    const OracleCounts& c = summary.records[std::min(k + 1, summary.records.size() - 1)].counts;
    return {so_many, static_cast<double>(c.outer_gradient), static_cast<double>(c.inner_gradient),
            static_cast<double>(c.cross), static_cast<double>(c.hessian)};
  }
  return {};
}

}  // namespace

Json deterministic_orders(const ReproduceOptions& options, Json& claims) {
  Json rows = Json::array();
  for (const auto& [algorithm, name, paper_kappa] :
       {std::tuple<std::string, std::string, std::vector<double>>{"aid-cg", "AID-BiO", {3, 4, 3, 3.5}},
        {"itd", "ITD-BiO", {3, 4, 4, 4}}}) {
    options.progress(fmt::format("theorems 1 and 2, {}", name));
    Order kappa[4], epsilon[4];
    const auto add = [&](Order* orders, double size, const Counts& c) {
      const double values[] = {c.outer, c.inner, c.cross, c.hessian};
      for (int i = 0; i < 4; ++i) orders[i].add(size, values[i]);
      return c.iterations > 0;
    };
    bool reached = true;
    std::vector<double> kappas = {4, 8, 16};
    if (options.full()) kappas = {4, 8, 16, 32, 64};
    for (const double k : kappas) reached &= add(kappa, k, counts_of(algorithm, k, 0.25));
    for (const double e : {0.4, 0.2, 0.1, 0.05}) {
      Counts c = counts_of(algorithm, 8, e);
      if (algorithm == "itd") {  // the paper's orders have a factor of log(1 / epsilon), which is that of T
        for (double* count : {&c.inner, &c.cross, &c.hessian}) *count /= std::log(1 / e);
      }
      reached &= add(epsilon, 1 / e, c);
    }
    bool holds = reached;
    const char* columns[] = {"gradients of f", "gradients of g", "Jacobian products", "Hessian products"};
    for (int i = 0; reached && i < 4; ++i) {
      holds = holds && kappa[i].slope() < paper_kappa[static_cast<size_t>(i)] + 0.1;
      rows.push_back({{"method", name},
                      {"of", columns[i]},
                      {"order in kappa", kappa[i].slope()},
                      {"at most (paper)", paper_kappa[static_cast<size_t>(i)]},
                      {"in 1/epsilon", epsilon[i].slope()},
                      {"at most (paper) ", 1}});
      holds = holds && epsilon[i].slope() < 1.1;
    }
    claims.push_back(claim(
        fmt::format("{}: as many products as table 1 allows, at most, with {}", name,
                    algorithm == "itd" ? "T of order kappa log(1 / epsilon)"
                                       : "T of order kappa and CG steps of order sqrt(kappa), warm-started"),
        holds, reached ? "the slopes are in the table" : "epsilon was not reached"));
  }
  return table("Theorems 1 and 2: products until the mean of |grad Phi|^2 is epsilon", rows);
}

// ---- Theorem 3 (table 2) ----

namespace {

// x has half the dimension of w, so that grad_w f does not vanish where grad Phi does and the noise of the
// Hessian products counts. Example i of g and of f, whose noise is centred over the examples, with u = U'w
// for a rotation U and E x = x with zeros below:
//     g = sum_j h_j (1 + s_ij) u_j^2 / 2 - w'E (x + c_i x) + b_i'w,    f = |w - t|^2 / 2 + e_i'w
// h runs from 1 / kappa to 1, so that Phi = |H^-1 E x - t|^2 / 2 has a curvature of kappa^2, as in theorems 1
// and 2.
class NoisyQuadratic : public Problem {
 public:
  NoisyQuadratic(double kappa, uint64_t seed) : kappa_(kappa) {
    Random random(seed);
    rotation_ = std::get<0>(at::linalg_qr(random.normal({n, n}, doubles)));
    h_ = at::linspace(-std::log(kappa), 0, n, doubles).exp();
    target_ = at::ones({n}, doubles) / std::sqrt(static_cast<double>(n));
    inverse_ = rotation_.matmul((1 / h_).diag()).matmul(rotation_.t());
    solution_ = inverse_.narrow(1, 0, m).clone();
    const auto noise = [&](int64_t width, double size) {
      const Tensor drawn = random.uniform({examples, width}, doubles) * 2 - 1;
      return size * (drawn - drawn.mean(0));
    };
    s_ = noise(n, most_curved - 1);
    c_ = noise(m, 0.5);
    b_ = noise(n, 0.5);
    e_ = noise(n, 0.5);
  }
  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    const Tensor u = rotation_.t().mv(w);
    return (h_ * (1 + mean(s_, batch)) * u).dot(u) / 2 - w.narrow(0, 0, m).dot((1 + mean(c_, batch)) * x) +
           mean(b_, batch).dot(w);
  }
  Tensor outer_loss(const Tensor& w, const Tensor&, const Batch& batch) const override {
    return (w - target_).square().sum() / 2 + mean(e_, batch).dot(w);
  }
  Tensor initial_inner(uint64_t) const override { return at::zeros({n}, doubles); }
  Tensor initial_outer(uint64_t) const override { return at::zeros({m}, doubles); }
  int64_t inner_samples() const override { return examples; }
  int64_t outer_samples() const override { return examples; }

  double kappa() const { return kappa_; }
  double mu() const { return 1 / kappa_; }
  double eta() const { return 1 / (1.1 * most_curved); }  // below one over the curvature of every example
  double outer_rate() const { return 1 / (kappa_ * kappa_); }
  Tensor weights_at(const Tensor& x) const { return solution_.mv(x); }
  Tensor gradient(const Tensor& x) const { return solution_.t().mv(weights_at(x) - target_); }  // of Phi
  Tensor stationary_point() const {
    return at::linalg_solve(solution_.t().matmul(solution_), solution_.t().mv(target_).unsqueeze(1))
        .squeeze(1);
  }

 private:
  static constexpr int64_t n = 10, m = 5, examples = 50000;
  static constexpr double most_curved = 1.5;
  static Tensor mean(const Tensor& noise, const Batch& batch) {
    if (batch.is_full()) return at::zeros({noise.size(1)}, doubles);
    return noise.index_select(0, batch.index).mean(0);
  }
  double kappa_;
  Tensor rotation_, h_, target_, inverse_, solution_, s_, c_, b_, e_;
};

// 0 = the full set.
struct Batches {
  int64_t inner = 0, outer = 0, hessian = 0;  // S and D_g, D_f, B
};

Stocbio stocbio_on(const NoisyQuadratic& problem, double epsilon, int64_t hessian_batch) {
  const double kappa = problem.kappa();
  StocbioOptions o;
  o.inner = {.steps = static_cast<int64_t>(std::ceil(kappa)), .rate = problem.eta()};
  o.outer = {.optimizer = "sgd", .rate = problem.outer_rate()};
  o.terms = static_cast<int64_t>(std::ceil(kappa * std::log(kappa * kappa / epsilon)));
  o.linear_rate = problem.eta();
  o.hessian_batch = hessian_batch;
  // The batches of the products shrink as in the paper; full ones do not.
  if (hessian_batch > 0) o.strong_convexity = problem.mu();
  return Stocbio(o);
}

// |grad Phi|^2 at x_0, x_1, ...
std::vector<double> along(const NoisyQuadratic& problem, double epsilon, const Batches& batches,
                          int64_t iterations, bool from_minimum, uint64_t seed) {
  SolveOptions run{.iterations = iterations, .records = iterations, .keep_points = true, .seed = seed};
  run.batches = {.inner_batch = batches.inner, .outer_batch = batches.outer};
  const Tensor x = from_minimum ? problem.stationary_point() : problem.initial_outer(0);
  const Tensor w = from_minimum ? problem.weights_at(x) : problem.initial_inner(0);
  const SolveSummary summary = solve(problem, stocbio_on(problem, epsilon, batches.hessian), run, {}, x, w);
  std::vector<double> values;
  for (const SolveRecord& record : summary.records) values.push_back(squared(problem.gradient(record.x)));
  values.resize(std::min(values.size(), static_cast<size_t>(iterations)));
  return values;
}

double mean_of(const std::vector<double>& values, size_t from) {
  Mean mean;
  for (size_t i = from; i < values.size(); ++i) mean.add(values[i]);
  return mean.value();
}

// What one of the batches leaves of |grad Phi|^2 in the long run, times its size, the others being full.
double left_by(const NoisyQuadratic& problem, double epsilon, Batches batches, int64_t size, uint64_t seed) {
  const std::vector<double> values = along(problem, epsilon, batches, 300, true, seed);
  return mean_of(values, 100) * static_cast<double>(size);
}

struct Plan {
  int64_t iterations = 0;
  Batches batches;
  double reached = 0;  // the mean of |grad Phi|^2 over the iterations, by a run
  double outer = 0, inner = 0, cross = 0, hessian = 0;  // examples' gradients and products
};

// As theorem 3 divides epsilon: half for the iterations, which is what full batches would leave, and a sixth
// for each of the three kinds of batches, whose sizes follow from what a probe of 64 examples leaves. The
// plan is then run.
Plan plan_for(double kappa, double epsilon, uint64_t seed) {
  const NoisyQuadratic problem(kappa, seed);
  Plan plan;
  Tensor x = problem.initial_outer(0);
  for (double sum = 0; plan.iterations == 0 || sum > epsilon / 2 * static_cast<double>(plan.iterations);
       ++plan.iterations) {
    const Tensor gradient = problem.gradient(x);
    sum += squared(gradient);
    x = x - problem.outer_rate() * gradient;
  }
  constexpr int64_t probe = 64;
  const auto size = [&](const Batches& probed) {
    return left_by(problem, epsilon, probed, probe, seed) / (epsilon / 6);
  };
  const double S = size({.inner = probe}), D = size({.outer = probe}), B = size({.hessian = probe});
  const auto whole = [](double value) {
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(value)));
  };
  plan.batches = {.inner = whole(S), .outer = whole(D), .hessian = whole(B)};
  // Counts from the sizes before they are rounded up, which would hide how small ones grow. Logarithms, which
  // the table leaves out, are those of Q.
  const double steps = std::ceil(kappa), Q = std::ceil(kappa * std::log(kappa * kappa / epsilon));
  double products = 0;
  for (double k = 0; k < Q; ++k) products += B * Q * std::pow(1 - problem.eta() * problem.mu(), k);
  const auto iterations = static_cast<double>(plan.iterations);
  plan.outer = iterations * D;
  plan.inner = iterations * steps * S;
  plan.cross = iterations * S;
  plan.hessian = iterations * products / std::log(kappa * kappa / epsilon);
  plan.reached = mean_of(along(problem, epsilon, plan.batches, plan.iterations, false, seed), 0);
  return plan;
}

}  // namespace

Json stochastic_orders(const ReproduceOptions& options, Json& claims) {
  Json rows = Json::array();
  Order kappa[4], epsilon[4];
  bool reached = true;
  const auto add = [&](Order* orders, double k, double e, double size) {
    options.progress(fmt::format("table 2, kappa {}, epsilon {}", k, e));
    const Plan plan = plan_for(k, e, options.seed);
    const double values[] = {plan.outer, plan.inner, plan.cross, plan.hessian};
    for (int i = 0; i < 4; ++i) orders[i].add(size, values[i]);
    reached = reached && plan.reached <= e;
    rows.push_back({{"kappa", k},
                    {"epsilon", e},
                    {"iterations", plan.iterations},
                    {"S, D_g", plan.batches.inner},
                    {"D_f", plan.batches.outer},
                    {"B", plan.batches.hessian},
                    {"mean |grad Phi|^2", plan.reached}});
  };
  std::vector<double> kappas = {4, 8, 16};
  if (options.full()) kappas = {4, 8, 16, 32};
  for (const double k : kappas) add(kappa, k, 0.25, k);
  for (const double e : {0.4, 0.2, 0.1}) add(epsilon, 8, e, 1 / e);
  const std::vector<double> paper = {5, 9, 5, 6};
  bool holds = reached;
  std::string slopes;
  const char* columns[] = {"gradients of f", "gradients of g", "Jacobian products", "Hessian products"};
  for (int i = 0; i < 4; ++i) {
    const double in_kappa = kappa[i].slope(), in_epsilon = epsilon[i].slope();
    holds = holds && in_kappa < paper[static_cast<size_t>(i)] + 0.1 && in_epsilon < 2.1;
    slopes += fmt::format("{}{} {:.2f} and {:.2f}", i == 0 ? "" : ", ", columns[i], in_kappa, in_epsilon);
  }
  const std::string text =
      "Theorem 3: stocBiO needs at most kappa^5, kappa^9, kappa^5, kappa^6 / epsilon^2 (table 2)";
  claims.push_back(reached ? claim(text, holds, "orders in kappa and in 1/epsilon: " + slopes)
                           : undecided(text, "a plan did not reach its epsilon; " + slopes));
  return table("Theorem 3: what stocBiO needs for a mean of |grad Phi|^2 of epsilon", rows);
}

}  // namespace bilevel::reproduce
