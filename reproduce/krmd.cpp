// K-RMD (Shaban, Cheng, Hatch and Boots 2019): the toy of section 4.1 and the costs of table 1.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/algorithms/solve.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/problems/toy.h"
#include "reproduce/items.h"

namespace bilevel::reproduce {
namespace {

constexpr int64_t T = 100;
constexpr double rate = 0.1;
const std::vector<int64_t> Ks = {1, 5, 10, 25, 50, 100};

const at::TensorOptions doubles = at::TensorOptions().dtype(at::kDouble);

Tensor hypergradient(const Problem& problem, const Tensor& x, int64_t K) {
  Oracle oracle(problem);
  EstimatorSettings settings;
  settings.truncate = K;
  const auto estimator = make_estimator("truncated", settings);
  return hypergradient_at(oracle, x, problem.initial_inner(0), {.steps = T, .rate = rate}, *estimator)
      .hypergradient.value;
}
double length(const Tensor& t) { return t.norm().item<double>(); }

// The toy by K-RMD with eta_0 / sqrt(tau), eta_0 such that the first update has norm 0.6 (footnote 4).
SolveSummary descend_toy(const Problem& problem, const Tensor& x, int64_t K, int64_t iterations) {
  AlgorithmSettings settings;
  settings.inner.steps = T;
  settings.inner.rate = rate;
  settings.hypergradient.truncate = K;
  settings.outer.rate = 0.6 / length(hypergradient(problem, x, K));
  settings.outer.schedule.kind = ScheduleKind::inverse_sqrt;
  return solve(problem, *make_algorithm("krmd", settings),
               {.iterations = iterations, .records = iterations, .keep_points = true}, {}, x);
}

// Figure 1: the error at x = (1, 1) and Proposition 3.1's bound, for each K.
Json figure1(Json& claims) {
  const Toy toy(doubles);
  const Tensor x = toy.initial_outer(0);
  const Tensor full = hypergradient(toy, x, T);
  Oracle oracle(toy);
  const auto inner = run_inner(oracle, x, toy.initial_inner(0),
                               {.options = {.steps = T, .rate = rate}, .keep = {}, .batches = {}});
  const double p = length(oracle.outer_gradients(inner.final.w, x, {}).w);
  Json rows = Json::array();
  bool holds = true;
  for (int64_t K = 1; K <= T; ++K) {
    const double error = length(hypergradient(toy, x, K) - full);
    const double bound = std::pow(1 - rate * 0.5, K) / (rate * 0.5) * p * rate;  // alpha = 1/2, M_B = rate
    holds = holds && error <= bound;
    if (std::count(Ks.begin(), Ks.end(), K) > 0)
      rows.push_back({{"K", K}, {"error", error}, {"bound", bound}});
  }
  claims.push_back(claim("Proposition 3.1 bounds the error at x = (1,1) for every K", holds,
                         "all K from 1 to 100 were checked"));
  return table("Figure 1: |h - full gradient| at x = (1, 1)", rows);
}

// Figure 2: along the K = 1 trajectory, for the plain and the interfering outer loss. Where the paper starts
// is not in its text. With the interfering term K = 1 ends right of the optimum, so only a trajectory that
// comes from the left passes between the two, where the truncated and the full gradient point apart.
Json figure2(int64_t iterations, Json& claims) {
  Json rows = Json::array();
  double smallest_plain = std::numeric_limits<double>::infinity();
  double smallest_interfering = smallest_plain;
  for (const bool interfering : {false, true}) {
    const Toy toy(doubles, interfering);
    double& smallest_of_all = interfering ? smallest_interfering : smallest_plain;
    for (const double first : {1.0, -1.0}) {
      const SolveSummary run = descend_toy(toy, at::tensor({first, 1.0}, doubles), 1, iterations);
      for (const int64_t K : {1, 5, 25}) {
        double smallest = std::numeric_limits<double>::infinity();
        double largest = -smallest;
        for (const SolveRecord& record : run.records) {
          const Tensor full = hypergradient(toy, record.x, T);
          if (length(full) < 1e-9) continue;  // 0 / 0
          const double ratio = (hypergradient(toy, record.x, K).dot(full) / full.dot(full)).item<double>();
          smallest = std::min(smallest, ratio);
          largest = std::max(largest, ratio);
        }
        smallest_of_all = std::min(smallest_of_all, smallest);
        rows.push_back({{"outer loss", interfering ? "f + 5|x - (1,0)|^2" : "f"},
                        {"start", fmt::format("({:g}, 1)", first)},
                        {"K", K},
                        {"smallest ratio", smallest},
                        {"largest ratio", largest}});
      }
    }
  }
  claims.push_back(
      claim("truncated gradients of f are descent directions for every K (Lemma 3.2)", smallest_plain > 0.01,
            fmt::format("the smallest ratio along the K = 1 trajectories is {:.3f}", smallest_plain)));
  claims.push_back(claim("with the interfering term the ratio can become negative", smallest_interfering < 0,
                         fmt::format("the smallest ratio is {:.3g}", smallest_interfering)));
  return table("Figure 2: h . full / |full|^2 along the K = 1 trajectory", rows);
}

// Figure 3: where each K ends on the interfering loss, and Figure 4: on the plain one.
Json figures3and4(int64_t iterations, bool interfering, const ReproduceOptions& options, Json& claims) {
  const Toy toy(doubles, interfering);
  Json rows = Json::array();
  std::vector<double> ends, norms;
  Tensor best;
  for (auto K = Ks.rbegin(); K != Ks.rend(); ++K) {
    options.progress(fmt::format("{} K = {}", interfering ? "figure 3," : "figure 4,", *K));
    const SolveSummary run = descend_toy(toy, toy.initial_outer(0), *K, iterations);
    const Tensor& x = run.state.x;
    if (!best.defined()) best = x;  // the largest K has the full gradient
    const double distance = length(x - best), norm = length(hypergradient(toy, x, T));
    ends.push_back(distance);
    norms.push_back(norm);
    rows.push_back({{"K", *K},
                    {"x_1", x[0].item<double>()},
                    {"x_2", x[1].item<double>()},
                    {"from full", distance},
                    {"|full gradient|", norm},
                    {"f", run.records.back().outer_loss}});
  }
  if (interfering) {
    // Ends are in the order of falling K.
    claims.push_back(claim("optimising with K = 1 converges to a suboptimal point", ends.back() > 0.05,
                           fmt::format("it ends {:.3f} away from full reverse mode", ends.back())));
    const bool falls = std::is_sorted(ends.begin(), ends.end());
    claims.push_back(claim("larger K rapidly decreases the bias", falls && ends[1] < 0.1 * ends.back(),
                           fmt::format("K = 50 ends {:.2g} away, K = 1 {:.2g}", ends[1], ends.back())));
  } else {
    const double worst = *std::max_element(norms.begin(), norms.end());
    claims.push_back(claim("for f every K converges to a stationary point (Theorem 3.4)", worst < 1e-2,
                           fmt::format("the largest |full gradient| at the end is {:.2g}", worst)));
  }
  return table(fmt::format("Figure {}: where {} steps end", interfering ? 3 : 4, iterations), rows);
}

}  // namespace

Json krmd_toy(const ReproduceOptions& options) {
  const int64_t iterations = options.full() ? 1000 : 200;
  Json claims = Json::array(), tables = Json::array();
  tables.push_back(figure1(claims));
  options.progress("figure 2");
  tables.push_back(figure2(options.full() ? 200 : 40, claims));
  tables.push_back(figures3and4(iterations, true, options, claims));
  tables.push_back(figures3and4(iterations, false, options, claims));
  return {{"tables", tables},
          {"claims", claims},
          {"notes",
           Json::array(
               {"The paper's figures have no numbers in the text; figures 3 and 4 start at (1, 1), where its "
                "figure 1 is."})}};
}

Json krmd_table1(const ReproduceOptions& options) {
  const int64_t steps = options.full() ? 400 : 50;
  constexpr int64_t K = 10;
  const Mlp problem(MlpOptions{.seed = options.seed, .tensors = doubles});
  const Tensor x = problem.initial_outer(options.seed), w = problem.initial_inner(options.seed);
  EstimatorSettings settings;
  settings.truncate = K;
  struct Row {
    const char *method, *estimator, *time, *space;
  };
  Json rows = Json::array();
  std::map<std::string, Hypergradient> found;
  for (const Row& row : {Row{"FMD", "forward", "O(cNT)", "O(MN)"}, Row{"RMD", "reverse", "O(cT)", "O(MT)"},
                         Row{"checkpointing", "reverse-sqrt", "O(cT), twice", "O(M sqrt(T))"},
                         Row{"K-RMD, K = 10", "truncated", "O(cK)", "O(MK)"}}) {
    options.progress(row.method);
    Oracle oracle(problem);
    const Hypergradient h = hypergradient_at(oracle, x, w, {.steps = steps, .rate = 0.3},
                                             *make_estimator(row.estimator, settings))
                                .hypergradient;
    rows.push_back({{"method", row.method},
                    {"time (paper)", row.time},
                    {"hessian", h.counts.hessian},
                    {"cross", h.counts.cross},
                    {"inner again", h.counts.inner_gradient},
                    {"seconds", h.seconds},
                    {"space (paper)", row.space},
                    {"kept bytes", h.bytes_kept}});
    found.emplace(row.estimator, h);
  }
  const Tensor& full = found.at("reverse").value;
  const auto same = [&](const char* name) { return length(found.at(name).value - full) / length(full); };
  Json claims = Json::array();
  claims.push_back(claim("forward mode and checkpointing are exact",
                         same("forward") < 1e-10 && same("reverse-sqrt") == 0,
                         fmt::format("relative differences from reverse {:.1g} and {:.1g}", same("forward"),
                                     same("reverse-sqrt"))));
  claims.push_back(claim("truncation costs K / T of reverse mode",
                         found.at("truncated").counts.cross * steps == found.at("reverse").counts.cross * K,
                         fmt::format("{} against {} cross products, {} against {} bytes",
                                     found.at("truncated").counts.cross, found.at("reverse").counts.cross,
                                     found.at("truncated").bytes_kept, found.at("reverse").bytes_kept)));
  claims.push_back(claim("forward mode costs N times as many products as reverse mode",
                         found.at("forward").counts.cross == x.numel() * steps,
                         fmt::format("{} cross products for N = {} and T = {}",
                                     found.at("forward").counts.cross, x.numel(), steps)));
  return {{"tables",
           Json::array({table(fmt::format("Table 1 measured: M = {} weights, N = {} hyperparameters, T = {}",
                                          w.numel(), x.numel(), steps),
                              rows)})},
          {"claims", claims}};
}

}  // namespace bilevel::reproduce
