// K-RMD, figures 6 and 7: what truncation does to the gradient along a run. Figure 6 is on the interaction of
// classes (table 3's job), figure 7 on one-shot Omniglot (table 4's).

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
#include "cli/reproduce_krmd_pool.h"
#include "cli/reproduce_meta.h"

namespace bilevel::cli {
namespace {

double norm_of(const Tensor& v) { return v.norm().item<double>(); }
double cosine(const Tensor& a, const Tensor& b) {
  return at::dot(a, b).item<double>() / std::max(norm_of(a) * norm_of(b), 1e-300);
}

// ---- figure 6 ----

constexpr int64_t interaction_T = 100;
const std::vector<int64_t> interaction_Ks = {1, 5, 25, interaction_T};

struct GradientPoint {
  int64_t iteration;
  double loss, norm, cosine;
};
using GradientCurves = std::map<int64_t, std::vector<GradientPoint>>;  // by K

GradientCurves interaction_curves(const TaskInteraction& problem, int64_t iterations, int64_t records,
                                  const ReproduceOptions& options) {
  const InnerOptions inner{.steps = interaction_T, .rate = problem.rate()};
  const auto full = make_estimator("reverse", {});
  const Tensor start = problem.initial_inner(options.seed);
  GradientCurves curves;
  for (const int64_t K : interaction_Ks) {
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
    for (const int64_t K : interaction_Ks) row[fmt::format("loss K={}", K)] = curves.at(K)[i].loss;
    for (const int64_t K : interaction_Ks) row[fmt::format("|full| K={}", K)] = curves.at(K)[i].norm;
    for (const int64_t K : interaction_Ks) {
      if (K < interaction_T) row[fmt::format("cos K={}", K)] = curves.at(K)[i].cosine;
    }
    rows.push_back(row);
  }
  tables.push_back(
      table(fmt::format("Figure 6 on {}: loss, norm of the full gradient, cosine to it", name), rows));
  const auto last = [&](int64_t K) { return curves.at(K).back(); };
  bool norms_fall = true, losses_fall = true;
  for (size_t i = 1; i < interaction_Ks.size(); ++i) {
    norms_fall = norms_fall && last(interaction_Ks[i]).norm <= last(interaction_Ks[i - 1]).norm;
    losses_fall = losses_fall && last(interaction_Ks[i]).loss <= last(interaction_Ks[i - 1]).loss;
  }
  claims.push_back(claim(
      fmt::format(
          "{}: the bias falls with K (CIFAR-100's plots): the full gradient's norm and the loss at the "
          "end",
          name),
      norms_fall && losses_fall,
      fmt::format(
          "norm {:.2e}, {:.2e}, {:.2e}, {:.2e}; loss {:.4f}, {:.4f}, {:.4f}, {:.4f} for K = 1, 5, 25, T",
          last(1).norm, last(5).norm, last(25).norm, last(interaction_T).norm, last(1).loss, last(5).loss,
          last(25).loss, last(interaction_T).loss)));
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

// ---- figure 7 ----

constexpr int64_t omniglot_T = 50;
const std::vector<int64_t> omniglot_Ks = {1, 10, 25, omniglot_T};
const std::vector<int64_t> depths = {1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45};
// Where rho of every layer begins. 0.02 is table 4's, by which a step forgets 0.4 % of what came before;
// 1 lets it forget 20 %. No rho at all is a number so small that Adam's epsilon stops its logarithm, too.
const std::vector<std::pair<std::string, double>> weights = {
    {"rho from 1", 1}, {"rho from 0.02", 0.02}, {"rho = 0", 1e-20}};

FewShotRun omniglot_run(const std::string& label, int64_t K, double weight, const ReproduceOptions& options) {
  FewShotRun run{.label = label,
                 .learner = meta::default_learner_options("hyper-representation"),
                 .outer_rate = 0.01,
                 .meta_batch = 4,
                 .seed = options.seed};
  run.learner.inner_steps = omniglot_T;
  run.learner.truncate = K == omniglot_T ? 0 : K;
  run.learner.centre_weight = weight;
  return run;
}

struct DepthErrors {
  std::vector<double> all, embedding;  // of x, and of the first layers alone, by depth
};
DepthErrors depth_errors(const FewShotGround& ground, double weight, int64_t iterations,
                         const std::string& label, const ReproduceOptions& options) {
  FewShotRun run = omniglot_run(label, 10, weight, options);
  run.iterations = {iterations};
  const FewShotCurve curve = run_few_shot(ground, run, options);
  const Tensor& x = curve.state.algorithm.x;
  const meta::TaskBatch tasks = ground.data.source->tasks(meta::Part::train, iterations * 4, 4);
  const auto gradient = [&](int64_t K) {
    const meta::Learner learner =
        ground.learner(omniglot_run(label, K, weight, options).learner, options.tensors);
    return learner.hypergradient(x, tasks).value.to(at::kDouble);
  };
  const int64_t shared =
      ground.learner(run.learner, options.tensors).outer_layout().entries().front().size;  // "embedding"
  const Tensor exact = gradient(omniglot_T);
  DepthErrors errors;
  for (const int64_t K : depths) {
    options.progress(fmt::format("{}: the last {} steps", label, K));
    const Tensor difference = gradient(K) - exact;
    errors.all.push_back(norm_of(difference) / norm_of(exact));
    errors.embedding.push_back(norm_of(difference.narrow(0, 0, shared)) /
                               norm_of(exact.narrow(0, 0, shared)));
  }
  return errors;
}

// Exponential decay over the depths: a straight line of falling logarithms, by its squared correlation, that
// comes down by ten times at least.
bool decays(const std::vector<double>& errors, double& factor, double& fit) {
  double n = 0, sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
  for (size_t i = 0; i < depths.size(); ++i) {
    const double x = static_cast<double>(depths[i]), y = std::log(std::max(errors[i], 1e-12));
    n += 1, sx += x, sy += y, sxx += x * x, syy += y * y, sxy += x * y;
  }
  const double covariance = n * sxy - sx * sy;
  fit = covariance * covariance / std::max((n * sxx - sx * sx) * (n * syy - sy * sy), 1e-300);
  factor = errors.front() / errors.back();
  return covariance < 0 && fit > 0.9 && factor > 10;
}

}  // namespace

Json reproduce_krmd_figure6(const ReproduceOptions& options) {
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
                    "of a trained ResNet-18, which is not to be had here",
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
  notes.push_back(fmt::format("T = {}, {} hyper-iterations of Adam at {:g}, seed {}", interaction_T,
                              iterations, default_interact_options().settings.outer.rate, options.seed));
  return {{"tables", tables}, {"claims", claims}, {"notes", notes}};
}

Json reproduce_krmd_figure7(const ReproduceOptions& options) {
  const FewShotGround ground =
      few_shot_ground({"omniglot"}, {.ways = 5, .shots = 1, .queries = 15}, "omniglot", 8, options);
  const int64_t step = options.full() ? 500 : 10, points = options.full() ? 10 : 3;
  Json learning = Json::array(), error_rows = Json::array(), claims = Json::array();
  std::map<int64_t, meta::TaskScore> end;
  std::map<int64_t, std::vector<double>> cosines;
  const meta::Learner full =
      ground.learner(omniglot_run("", omniglot_T, 0.02, options).learner, options.tensors);
  for (const int64_t K : omniglot_Ks) {
    FewShotRun run = omniglot_run(fmt::format("K = {}", K), K, 0.02, options);
    for (int64_t i = 0; i <= points; ++i) run.iterations.push_back(i * step);
    run.valid_tasks = run.test_tasks = options.full() ? 120 : 20;
    const meta::Learner truncated = ground.learner(run.learner, options.tensors);
    run.look = [&](const meta::LearnState& state) {
      if (K == omniglot_T) return;
      const Tensor& x = state.algorithm.x;
      const meta::TaskBatch tasks =
          ground.data.source->tasks(meta::Part::train, state.algorithm.iteration * 4, 4);
      cosines[K].push_back(
          cosine(truncated.hypergradient(x, tasks).value, full.hypergradient(x, tasks).value));
    };
    const FewShotCurve curve = run_few_shot(ground, run, options);
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const FewShotPoint& p = curve.points[i];
      learning.push_back({{"K", K == omniglot_T ? Json("full") : Json(K)},
                          {"iteration", p.iteration},
                          {"test accuracy", score_text(p.test)},
                          {"validation error", 100 - p.valid.accuracy},
                          {"cosine", K == omniglot_T ? Json(nullptr) : Json(cosines[K][i])}});
    }
    end[K] = curve.last().test;
  }
  const double limit = end[omniglot_T].accuracy;
  bool similar = true, decay = true;
  double least = 1;
  for (const int64_t K : {int64_t{1}, int64_t{10}, int64_t{25}}) {
    similar = similar && end[K].accuracy >=
                             limit - std::hypot(end[K].accuracy_interval, end[omniglot_T].accuracy_interval);
    for (const double c : cosines[K]) least = std::min(least, c);
    decay = decay && cosines[K].back() < cosines[K].front();
  }
  claims.push_back(claim("K-RMD is similar to full RMD: not below it by more than the intervals", similar,
                         fmt::format("{:.1f}, {:.1f}, {:.1f} for K = 1, 10, 25; full {:.1f}", end[1].accuracy,
                                     end[10].accuracy, end[25].accuracy, limit)));
  claims.push_back(claim("the cosines to the full gradient are always positive", least > 0,
                         fmt::format("the smallest is {:.3f}", least)));
  claims.push_back(
      claim("they show a slight decay over time, for every K", decay,
            fmt::format("K = 1 from {:.3f} to {:.3f}, K = 25 from {:.3f} to {:.3f}", cosines[1].front(),
                        cosines[1].back(), cosines[25].front(), cosines[25].back())));

  std::vector<DepthErrors> errors;
  for (const auto& [label, weight] : weights) {
    errors.push_back(depth_errors(ground, weight, options.full() ? 5000 : 10, label, options));
  }
  for (size_t i = 0; i < depths.size(); ++i) {
    Json row = {{"K", depths[i]}};
    for (size_t j = 0; j < weights.size(); ++j) {
      row[weights[j].first] = errors[j].all[i];
      row[weights[j].first + ", first layers"] = errors[j].embedding[i];
    }
    error_rows.push_back(row);
  }
  double factor = 0, fit = 0;
  for (size_t j = 0; j + 1 < weights.size(); ++j) {
    const bool holds = decays(errors[j].all, factor, fit);
    claims.push_back(
        claim(fmt::format("{}: the relative error falls exponentially with K", weights[j].first), holds,
              fmt::format("{:.3g} times from K = 1 to 45, squared correlation of its logarithm {:.3f}",
                          factor, fit)));
  }
  const bool without = decays(errors.back().all, factor, fit);
  claims.push_back(claim("rho = 0: it does not", !without,
                         fmt::format("{:.3g} times, squared correlation {:.3f}", factor, fit)));
  Json notes = Json::array({ground.note});
  notes.push_back(
      "w begins at the centre c, so that the full gradient holds c's effect as a start as well, which "
      "truncation cuts off; the first layers' errors are free of it. The paper does not say which rho its "
      "fourth plot has");
  if (!options.full()) {
    notes.push_back(fmt::format("quick: {} iterations, plot 4 after 10; the paper has 5000", points * step));
  }
  return {{"tables",
           {table("Figure 7, plots 1-3: along the iterations", learning),
            table("Figure 7, plot 4: relative error against the reverse depth K", error_rows)}},
          {"claims", claims},
          {"notes", notes}};
}

}  // namespace bilevel::cli
