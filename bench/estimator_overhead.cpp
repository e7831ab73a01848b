// What an estimator costs beyond its products: its wall time less the time inside the problem
// (OracleCounts.seconds), over its wall time, on a network of a million weights and a batch of 256. The
// target is 5 %. What is left over is the arithmetic on vectors of a million numbers, the solvers' dot
// products, and the freeing of graphs. Estimators take turns and the median of the rounds is shown, with the
// largest beside it.
//
// Outer variables are the network's four log regularisers alone, so that forward mode is feasible too. The
// curvature is damped, so that conjugate gradients take all their steps.
//
// Options: --threads, --allocator, --double, --rounds, --steps (of the inner loop), --terms, --method (one
// alone).

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/support.h"
#include "bilevel/hypergradients/registry.h"
#include "bilevel/problems/mlp.h"
#include "bilevel/run/restart.h"

namespace {

using bilevel::Batch;
using bilevel::Tensor;

constexpr double target_percent = 5;

bilevel::FunctionProblem regularized_network(at::ScalarType dtype) {
  bilevel::MlpOptions options;
  options.data = {.classes = 10, .features = 784, .separation = 0.1, .unit_rows = true};
  options.hidden = 1258;  // 1,000,120 weights
  options.samples = 256;
  options.valid_samples = 256;
  options.initial_log = -7;
  options.tensors = at::TensorOptions().dtype(dtype);
  const auto network = std::make_shared<const bilevel::Mlp>(options);
  const Tensor start = network->initial_outer(0);
  const Tensor example_logits = start.slice(0, 4);
  return {[network, example_logits](const Tensor& w, const Tensor& x, const Batch& batch) {
            return network->inner_loss(w, at::cat({x, example_logits}), batch);
          },
          [network](const Tensor& w, const Tensor& x, const Batch& batch) {
            return network->outer_loss(w, x, batch);
          },
          network->initial_inner(0), start.slice(0, 0, 4).clone()};
}

struct Share {
  double seconds, percent;
};

Share share_of(double seconds, double inside) { return {seconds, 100 * (seconds - inside) / seconds}; }

Share median(std::vector<Share> shares) {
  std::sort(shares.begin(), shares.end(),
            [](const Share& a, const Share& b) { return a.percent < b.percent; });
  return shares[shares.size() / 2];
}

double largest(const std::vector<Share>& shares) {
  double result = 0;
  for (const Share& share : shares) result = std::max(result, share.percent);
  return result;
}

void print_row(const std::string& name, const std::vector<Share>& shares, const bilevel::OracleCounts& counts,
               const std::string& status) {
  const Share middle = median(shares);
  fmt::print("{:<18} {:>8.3f} {:>9.2f} % {:>8.2f} % {:>10} {:>9} {:>6}  {:<20}{}\n", name, middle.seconds,
             middle.percent, largest(shares), counts.inner_gradient, counts.hessian, counts.cross, status,
             middle.percent <= target_percent ? "" : "  over the target");
}

}  // namespace

int main(int argc, char** argv) try {
  bilevel::restart_with_best_settings(argv);
  bench::Options options(argc, argv);
  const bench::Machine machine(options);
  const at::ScalarType dtype = options.flag("double") ? at::kDouble : at::kFloat;
  const int64_t rounds = options.integer("rounds", 3);
  bilevel::InnerOptions inner;
  inner.steps = options.integer("steps", 5);
  inner.rate = 0.1;
  bilevel::EstimatorSettings settings;
  settings.terms = options.integer("terms", 10);
  settings.truncate = 3;
  settings.curvature.damping = 0.01;
  settings.byte_budget = 12'000'000;  // little enough for reverse-binomial to recompute
  const std::string only = options.text("method", "");
  options.finish();

  const bilevel::FunctionProblem problem = regularized_network(dtype);
  const Tensor x = problem.initial_outer(0);
  const Tensor start = problem.initial_inner(0);
  fmt::print(
      "n = {} in {}, {} inner steps, {} terms, {} threads, allocator {}, median of {} rounds in turns\n\n",
      start.numel(), c10::toString(dtype), inner.steps, settings.terms, machine.threads, machine.allocator,
      rounds);

  std::map<std::string, std::vector<Share>> shares;
  std::map<std::string, bilevel::Hypergradient> last;
  std::vector<Share> loop;
  bilevel::OracleCounts loop_counts;
  for (int64_t round = 0; round <= rounds; ++round) {  // round 0 warms up
    for (const auto& row : bilevel::estimator_rows()) {
      // exact is cg until rounding at this size: as many products as it takes, and the same code as cg.
      if (row.name == "exact" || (!only.empty() && row.name != only)) continue;
      const auto estimator = bilevel::make_estimator(row.name, settings);
      bilevel::Oracle oracle(problem);
      bilevel::InnerLoop run;
      run.options = inner;
      run.keep = estimator->keeps(inner.steps, static_cast<int64_t>(start.nbytes()));
      const auto begin = std::chrono::steady_clock::now();
      bilevel::Trajectory trajectory = bilevel::run_inner(oracle, x, start, run);
      const double loop_seconds = bench::seconds_since(begin);
      const auto found = estimator->estimate(oracle, {.x = x, .inner = trajectory});
      if (round == 0) continue;
      loop.push_back(share_of(loop_seconds, trajectory.counts.seconds));
      loop_counts = trajectory.counts;
      shares[row.name].push_back(share_of(found.seconds, found.counts.seconds));
      last[row.name] = found;
    }
  }

  fmt::print("{:<18} {:>8} {:>11} {:>10} {:>10} {:>9} {:>6}  {}\n", "", "seconds", "overhead", "largest",
             "gradients", "hessians", "cross", "status");
  print_row("inner loop", loop, loop_counts, "");
  for (const auto& row : bilevel::estimator_rows()) {
    if (shares.count(row.name) == 0) continue;
    const auto& found = last.at(row.name);
    print_row(row.name, shares.at(row.name), found.counts, std::string(bilevel::name_of(found.status)));
  }
  return 0;
} catch (const c10::Error& error) {
  fmt::print(stderr, "bench_estimator_overhead: {}\n", error.what_without_backtrace());
  return 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_estimator_overhead: {}\n", error.what());
  return 1;
}
