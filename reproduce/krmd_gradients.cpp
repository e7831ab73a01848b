// K-RMD, figure 6: what truncation does to the gradient along a run, on the interaction of classes (table 3's
// job).

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/core/random.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/interact/interact.h"
#include "reproduce/krmd_pool.h"

namespace bilevel::reproduce {
namespace {

double norm_of(const Tensor& v) { return v.norm().item<double>(); }
double cosine(const Tensor& a, const Tensor& b) {
  return at::cosine_similarity(a, b, 0, 1e-15).item<double>();
}

constexpr int64_t T = 100;
const std::vector<int64_t> Ks = {1, 5, 25, T};

struct GradientPoint {
  int64_t iteration;
  double loss, norm, cosine;
};
using GradientCurves = std::map<int64_t, std::vector<GradientPoint>>;  // by K

GradientCurves interaction_curves(const TaskInteraction& problem, int64_t iterations, int64_t records,
                                  const ReproduceOptions& options) {
  const InnerOptions inner{.steps = T, .rate = problem.rate()};
  const auto full = make_estimator("reverse", {});
  const Tensor start = problem.initial_inner(options.seed);
  GradientCurves curves;
  for (const int64_t K : Ks) {
    InteractOptions job = default_interact_options();
    job.settings.inner = inner;
    job.settings.hypergradient.truncate = K;
    const SolveOptions solve_options{
        .iterations = iterations, .records = records, .keep_points = true, .seed = options.seed};
    const SolveSummary s =
        solve(problem, *make_algorithm("krmd", job.settings), solve_options,
              {.record = [&](const SolveRecord& r, const AlgorithmState&) {
                options.progress(fmt::format("K = {}: iteration {} of {}", K, r.iteration, iterations));
                return true;
              }});
    if (ended_badly(s.reason)) throw std::runtime_error(s.message);
    const auto truncated = make_estimator("truncated", job.settings.hypergradient);
    for (const SolveRecord& record : s.records) {
      Oracle oracle(problem);
      const Hypergradient exact = hypergradient_at(oracle, record.x, start, inner, *full).hypergradient;
      const Tensor ours = hypergradient_at(oracle, record.x, start, inner, *truncated).hypergradient.value;
      curves[K].push_back({record.iteration, exact.outer_loss.item<double>(), norm_of(exact.value),
                           cosine(ours, exact.value)});
    }
  }
  return curves;
}

void show_interaction(const std::string& name, const GradientCurves& curves, Json& tables, Json& claims) {
  Json rows = Json::array();
  for (size_t i = 0; i < curves.at(1).size(); ++i) {
    Json row = {{"iteration", curves.at(1)[i].iteration}};
    for (const int64_t K : Ks) row[fmt::format("loss K={}", K)] = curves.at(K)[i].loss;
    for (const int64_t K : Ks) row[fmt::format("|full| K={}", K)] = curves.at(K)[i].norm;
    for (const int64_t K : Ks) {
      if (K < T) row[fmt::format("cos K={}", K)] = curves.at(K)[i].cosine;
    }
    rows.push_back(row);
  }
  tables.push_back(
      table(fmt::format("Figure 6 on {}: loss, norm of the full gradient, cosine to it", name), rows));
  const auto last = [&](int64_t K) { return curves.at(K).back(); };
  bool norms_fall = true, losses_fall = true;
  for (size_t i = 1; i < Ks.size(); ++i) {
    norms_fall = norms_fall && last(Ks[i]).norm <= last(Ks[i - 1]).norm;
    losses_fall = losses_fall && last(Ks[i]).loss <= last(Ks[i - 1]).loss;
  }
  claims.push_back(claim(
      fmt::format(
          "{}: the bias falls with K (CIFAR-100's plots): the full gradient's norm and the loss at the "
          "end",
          name),
      norms_fall && losses_fall,
      fmt::format(
          "norm {:.2e}, {:.2e}, {:.2e}, {:.2e}; loss {:.4f}, {:.4f}, {:.4f}, {:.4f} for K = 1, 5, 25, T",
          last(1).norm, last(5).norm, last(25).norm, last(T).norm, last(1).loss, last(5).loss, last(25).loss,
          last(T).loss)));
  double least = 1;
  for (const GradientPoint& point : curves.at(1)) least = std::min(least, point.cosine);
  claims.push_back(claim(fmt::format("{}: 1-RMD's cosine takes negative values (CIFAR-100's plot)", name),
                         least < 0, fmt::format("the smallest is {:.3f}", least)));
  claims.push_back(claim(
      fmt::format("{}: for K > 1 both directions end almost the same, cosine above 0.99 (CIFAR-10's plot)",
                  name),
      std::min(last(5).cosine, last(25).cosine) > 0.99,
      fmt::format("{:.4f} at K = 5, {:.4f} at K = 25", last(5).cosine, last(25).cosine)));
}

}  // namespace

Json krmd_figure6(const ReproduceOptions& options) {
  const int64_t iterations = options.full() ? 5000 : 120, records = options.full() ? 25 : 6;
  Json tables = Json::array(), claims = Json::array(), notes = Json::array();
  TaskInteractionOptions on_images;
  on_images.rate = 0.1;
  const auto run = [&](const FeaturePool& pool, int64_t m) {
    const TaskSets sets =
        draw_interaction_trial(pool, m, named_seed(options.seed, "figure 6"), options.tensors);
    show_interaction(pool.name,
                     interaction_curves({sets, on_images, options.tensors}, iterations, records, options),
                     tables, claims);
  };
  const int64_t images = options.full() ? 0 : 2000;
  std::optional<FeaturePool> ten = load_feature_pool("cifar10", images, options);
  if (!ten) ten = load_feature_pool("fashion-mnist", images, options);
  if (ten) {
    run(*ten, 50);
    notes.push_back(
        fmt::format("{} with responses to random patches, where the paper has CIFAR and features "
                    "of a trained ResNet-18, which is not available here",
                    ten->name));
  } else {
    const TaskSets sets = draw_clustered_tasks({.seed = options.seed});
    show_interaction("clustered tasks",
                     interaction_curves({sets, {}, options.tensors}, iterations, records, options), tables,
                     claims);
    notes.push_back("neither cifar10 nor fashion-mnist is in --data-dir: 12 made-up tasks in three clusters");
  }
  if (options.full()) {
    if (const auto hundred = load_feature_pool("cifar100", 0, options)) {
      run(*hundred, 300);
    } else {
      notes.push_back("cifar100 is not in --data-dir: its row is left out");
    }
  }
  notes.push_back(fmt::format("T = {}, {} hyper-iterations of Adam at {:g}, seed {}", T, iterations,
                              default_interact_options().settings.outer.rate, options.seed));
  return {{"tables", tables}, {"claims", claims}, {"notes", notes}};
}

}  // namespace bilevel::reproduce
