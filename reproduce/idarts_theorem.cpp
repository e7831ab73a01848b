// iDARTS (Zhang et al., ICML 2021), theorem 2: with rates of alpha whose sum is infinite and whose squares
// have a finite sum, the stochastic hypergradient leads to a stationary point. The problem has the structure
// that the theorem asks for, an inner loss that is one function plus a linear one for each batch:
//
//     g_j = w' A w / 2 - w' (B x + b_j),    f_i = s_i |w - t - t_i|^2 / 2 + r |x - c|^2 / 2
//
// so that H, C and the gradient of f(x, w*(x)) are known.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/core/random.h"
#include "reproduce/figure.h"
#include "reproduce/items.h"
#include "reproduce/statistic.h"

namespace bilevel::reproduce {
namespace {

constexpr int64_t inner_size = 8, outer_size = 4, samples = 200;

struct Noise {
  double additive = 0;        // of b_j and t_i: it stays where the gradient vanishes
  double multiplicative = 0;  // of s_i, around 1: it vanishes with the gradient, as condition 2 asks
};

class SplitQuadratic : public Problem {
 public:
  SplitQuadratic(const Noise& noise, double direct, uint64_t seed) : direct_(direct) {
    Random random(named_seed(seed, "theorem 2"));
    const auto options = at::TensorOptions().dtype(at::kDouble);
    const Tensor m = random.normal({inner_size, inner_size}, options);
    matrix_ = m.mm(m.t()) / inner_size + 0.5 * at::eye(inner_size, options);
    cross_ = random.normal({inner_size, outer_size}, options);
    target_ = random.normal({inner_size}, options);
    centre_ = random.normal({outer_size}, options);
    if (direct == 0) target_ = solution(centre_);  // so that f is zero, and every f_i, at x = c
    shifts_ = centred(noise.additive * random.normal({samples, inner_size}, options));
    targets_ = centred(noise.additive * random.normal({samples, inner_size}, options));
    scales_ = 1 + noise.multiplicative * centred(2 * random.uniform({samples}, options) - 1);
  }

  Tensor inner_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return at::dot(w, matrix_.mv(w)) / 2 - at::dot(w, cross_.mv(x) + rows(shifts_, batch).mean(0));
  }
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    const Tensor away = (w - target_) - rows(targets_, batch);
    return (rows(scales_, batch) * away.square().sum(1)).mean() / 2 +
           direct_ * (x - centre_).square().sum() / 2;
  }
  Tensor inner_gradient(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    return matrix_.mv(w) - cross_.mv(x) - rows(shifts_, batch).mean(0);
  }
  OuterGradients outer_gradients(const Tensor& w, const Tensor& x, const Batch& batch) const override {
    const Tensor away = (w - target_) - rows(targets_, batch);
    return {outer_loss(w, x, batch), (rows(scales_, batch).unsqueeze(1) * away).mean(0),
            direct_ * (x - centre_)};
  }
  std::unique_ptr<Linearization> linearize(const Tensor& w, const Tensor& x,
                                           const Batch& batch) const override {
    return std::make_unique<Products>(*this, inner_gradient(w, x, batch));
  }
  Tensor initial_inner(uint64_t) const override { return at::zeros_like(target_); }
  Tensor initial_outer(uint64_t) const override { return at::zeros_like(centre_); }
  int64_t inner_samples() const override { return samples; }
  int64_t outer_samples() const override { return samples; }

  Tensor solution(const Tensor& x) const {
    return at::linalg_solve(matrix_, cross_.mv(x).unsqueeze(1)).squeeze(1);
  }
  // The parts of the theorem's constants at x: |C| <= |B|, |p|, mu and L.
  double error_bound(const Tensor& x, int64_t K, double rate) const {
    const Tensor values = at::linalg_eigvalsh(matrix_);
    const double mu = values.min().item<double>(), p = (solution(x) - target_).norm().item<double>(),
                 c = at::linalg_matrix_norm(cross_, 2).item<double>();
    return c * p / mu * std::pow(1 - rate * mu, static_cast<double>(K + 1));
  }
  double largest_curvature() const { return at::linalg_eigvalsh(matrix_).max().item<double>(); }
  Tensor gradient(const Tensor& x) const {  // of f(x, w*(x)): df/dx + B' A^-1 (w* - t)
    const Tensor p = solution(x) - target_;
    return direct_ * (x - centre_) + cross_.t().mv(at::linalg_solve(matrix_, p.unsqueeze(1)).squeeze(1));
  }
  double outer_curvature() const {
    const Tensor jacobian = at::linalg_solve(matrix_, cross_);
    return at::linalg_eigvalsh(jacobian.t().mm(jacobian)).max().item<double>() + direct_;
  }

 private:
  class Products : public Linearization {  // H = A and C = -B' everywhere
   public:
    Products(const SplitQuadratic& problem, Tensor gradient)
        : problem_(problem), gradient_(std::move(gradient)) {}
    Tensor gradient() override { return gradient_; }
    Tensor hessian(const Tensor& v) override { return problem_.matrix_.mv(v); }
    Tensor cross(const Tensor& v) override { return -problem_.cross_.t().mv(v); }
    Tensor cross_transposed(const Tensor& u) override { return -problem_.cross_.mv(u); }

   private:
    const SplitQuadratic& problem_;
    Tensor gradient_;
  };

  static Tensor centred(const Tensor& values) { return values - values.mean(0, true); }
  static Tensor rows(const Tensor& values, const Batch& batch) {
    return batch.is_full() ? values : values.index_select(0, batch.index);
  }

  double direct_;
  Tensor matrix_, cross_, target_, centre_, shifts_, targets_, scales_;
};

struct Setting {
  std::string label;
  Noise noise = {};
  double direct = 0;    // weight of the part of f that depends on x itself
  double exponent = 0;  // rates (k+1)^-exponent; 0 = constant
  int64_t K = 20;
};

struct Found {
  Setting setting;
  Statistic first = {}, middle = {},
            last = {};  // |gradient| in the first, in the middle and in the last tenth
  MeanCurve curve = {};
  double bound = 0;  // Theorem 1's at the last x, of the first seed
};

Found run(const Setting& setting, int64_t iterations, const ReproduceOptions& options) {
  Found found{.setting = setting};
  std::vector<double> first, middle, last;
  std::vector<Points> curves;
  for (const uint64_t seed : options.seeds_or(5)) {
    options.progress(fmt::format("{}, seed {}", setting.label, seed));
    const SplitQuadratic problem(setting.noise, setting.direct, 0);
    AlgorithmSettings s;
    s.inner.steps = 5;
    s.inner.rate = 1 / problem.largest_curvature();
    s.hypergradient.terms = setting.K;
    s.hypergradient.linear_rate = s.inner.rate;
    s.outer.rate = 0.3 / problem.outer_curvature();
    if (setting.exponent > 0) s.outer.schedule = {.kind = ScheduleKind::power, .exponent = setting.exponent};
    SolveOptions solve_options{.iterations = iterations, .records = 200, .keep_points = true, .seed = seed};
    solve_options.batches = {.inner_batch = 1, .outer_batch = 1};
    const SolveSummary summary = solve(problem, *make_algorithm("idarts", s), solve_options);
    Points norms;
    for (const SolveRecord& record : summary.records) {
      norms.emplace_back(static_cast<double>(record.iteration),
                         problem.gradient(record.x).norm().item<double>());
    }
    const auto mean = [&](size_t from, size_t to) {
      double sum = 0;
      for (size_t i = from; i < to; ++i) sum += norms[i].second;
      return sum / static_cast<double>(to - from);
    };
    const size_t n = norms.size(), tenth = std::max<size_t>(1, n / 10);
    first.push_back(mean(0, tenth));
    middle.push_back(mean(n / 2 - tenth / 2, n / 2 + tenth - tenth / 2));
    last.push_back(mean(n - tenth, n));
    curves.push_back(std::move(norms));
    if (found.bound == 0) found.bound = problem.error_bound(summary.state.x, setting.K, s.inner.rate);
  }
  found.first = statistic(first);
  found.middle = statistic(middle);
  found.last = statistic(last);
  found.curve = mean_curve(curves);
  found.curve.deviation.clear();  // on a logarithmic axis a spread around a small mean has no lower end
  return found;
}

// As far as the first point below `least`: one curve that falls to rounding would press all others together.
MeanCurve down_to(double least, MeanCurve curve) {
  const auto below = std::find_if(curve.mean.begin(), curve.mean.end(),
                                  [least](const auto& point) { return point.second < least; });
  curve.mean.erase(below, curve.mean.end());
  return curve;
}

}  // namespace

Json idarts_theorem2(const ReproduceOptions& options) {
  const int64_t iterations = options.full() ? 100'000 : 5'000;
  const Noise stays{.additive = 0.5}, vanishes{.multiplicative = 0.9};
  const std::vector<Setting> settings = {
      {"k^-0.75, noise that stays", stays, 0, 0.75},
      {"constant, noise that stays", stays, 0, 0},
      {"k^-0.75, noise that vanishes", vanishes, 0, 0.75},
      {"constant, noise that vanishes", vanishes, 0, 0},
      {"k^-0.75, f has x in it, K = 20", stays, 1, 0.75, 20},
      {"k^-0.75, f has x in it, K = 0", stays, 1, 0.75, 0},
  };
  std::vector<Found> all;
  Json rows = Json::array();
  Figure figure{.name = "idarts-theorem-2"};
  Panel panel{
      .title = "|gradient of f(x, w*(x))|, down to 1e-4", .x_label = "steps of alpha", .logarithmic = true};
  for (const Setting& setting : settings) {
    all.push_back(run(setting, iterations, options));
    const Found& f = all.back();
    rows.push_back({{"rates and noise", setting.label},
                    {"K", setting.K},
                    {"first tenth", f.first.text(4)},
                    {"in the middle", f.middle.text(4)},
                    {"last tenth", f.last.text(4)},
                    {"Theorem 1's bound", number(f.bound)}});
    figure.labels.push_back(setting.label);
    panel.curves.push_back(down_to(1e-4, f.curve));
  }
  figure.panels.push_back(std::move(panel));
  const auto mean = [&](size_t i) { return all[i].last.mean; };
  const auto why = [&](size_t i, size_t j) {
    return fmt::format("last tenth: {} {}, {} {}", all[i].setting.label, all[i].last.text(4),
                       all[j].setting.label, all[j].last.text(4));
  };
  Json claims = Json::array(
      {claim("with square-summable rates the gradient goes on falling",
             mean(0) < 0.8 * all[0].middle.mean || mean(0) < 1e-6,
             fmt::format("{} in the middle, {} at the end", all[0].middle.text(4), all[0].last.text(4))),
       claim("with a constant rate noise that does not vanish keeps it up",
             mean(1) > 0.8 * all[1].middle.mean && mean(1) > 2 * mean(0), why(0, 1)),
       claim("under condition 2 (noise that vanishes with the gradient) a constant rate converges, too",
             mean(3) < 1e-3 * all[3].first.mean, why(2, 3)),
       claim("where f has x in it a short series leaves a bias, which theorem 1 bounds",
             mean(5) > 3 * mean(4) && mean(5) <= all[5].bound,
             fmt::format("{}; the bound at K = 0 is {:.3g}", why(4, 5), all[5].bound))});
  Json notes = {
      fmt::format("{} steps of alpha after 5 weight steps each, batches of one, {} seeds; a tenth is "
                  "of the run.",
                  iterations, options.seeds_or(5).size()),
      "The theorem's limit is of the approximated hypergradient; the numbers are of the exact one, so "
      "that the bias of a short series shows."};
  save_figure(figure, options, notes);
  return {{"tables", Json::array({table("Theorem 2: |gradient of f(x, w*(x))|", rows)})},
          {"claims", claims},
          {"notes", notes}};
}

}  // namespace bilevel::reproduce
