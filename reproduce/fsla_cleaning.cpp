// FSLA (Li, Gu and Huang 2022), section 6.2 and appendix E: cleaning labels with a small convolutional
// network.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reproduce/runs.h"
#include "reproduce/verdict.h"

namespace bilevel::reproduce {
namespace {

// The paper's settings: 5000 + 5000 images, 80 % of the labels perturbed, no regulariser, batches of 256.
CleaningJob load(const std::string& set, const ReproduceOptions& options) {
  options.progress("reading " + set);
  NamedCleaningOptions named = named_set(set, options);
  named.corruption = 0.8;
  named.test_on_rest = false;
  named.bias = false;
  CleaningJob job;
  job.sets = make_named_cleaning_sets(named);
  // The paper has no sizes for its "4-layer CNN". Quick and medium take a quarter of the channels.
  CnnOptions cnn;
  if (!options.full()) cnn = {.first_channels = 4, .second_channels = 8, .hidden = 32};
  job.model = make_cnn_cleaning(job.sets, cnn, options.tensors);
  return job;
}

struct Rates {
  double delta = 1000, c_tau = 1e-3, c_beta = 1e-4, c_eta = 9e-4;
  int64_t batch = 256;
};

// The outer rate and the momentum's weight fall like 1 / sqrt(k + 1), as in Algorithm 1, and in the single
// loops the inner rate too. T > 1: every inner loop begins at the first w (storm_double_loop.h), as the paper
// has it.
TimedRun method(const std::string& label, const std::string& algorithm, const Rates& rates, int64_t T = 1,
                int64_t K = 1, const std::string& estimator = "cg") {
  TimedRun run;
  run.label = label;
  run.algorithm = algorithm;
  AlgorithmSettings& s = run.settings;
  s.method = estimator;
  s.inner.rate = rates.delta * rates.c_tau;
  s.inner.steps = T;
  s.linear_rate = algorithm == "fsla" ? rates.delta * rates.c_beta : 0.1;  // the paper's beta of NS
  s.momentum_decay = rates.delta * rates.c_eta;
  s.hypergradient.terms = K;
  // The network's Hessian has negative curvature: CG on it fails in most iterations, which ends the run.
  if (label.starts_with("CG")) s.hypergradient.curvature.kind = "gauss-newton";
  s.outer.rate = rates.delta;
  s.outer.schedule.kind = ScheduleKind::inverse_sqrt;
  run.batches = {.inner_batch = rates.batch, .outer_batch = rates.batch};
  return run;
}

// METHOD_T_K as in the paper's legends, BP_T. K of NS counts terms there and products here.
std::vector<TimedRun> methods_on(const std::string& set) {
  std::vector<TimedRun> runs = {method("FSLA", "fsla", {}), method("CG_1_10", "single-loop-cg", {}, 1, 10)};
  if (set != "mnist") return runs;
  runs.push_back(method("CG_1_1", "single-loop-cg", {}, 1, 1));
  runs.push_back(method("CG_5_10", "storm-double-loop", {}, 5, 10, "cg"));
  runs.push_back(method("NS_1_10", "single-loop-neumann", {}, 1, 9));
  runs.push_back(method("NS_5_10", "storm-double-loop", {}, 5, 9, "neumann"));
  runs.push_back(method("BP_5", "storm-double-loop", {}, 5, 1, "reverse"));
  runs.push_back(method("BP_20", "storm-double-loop", {}, 20, 1, "reverse"));
  return runs;
}

// Without the start, whose loss is so far above all others that these could not be told apart.
MeanCurve curve_of(const TimedResult& r, RunAxis axis) {
  Points points = r.validation_curve(axis);
  if (axis == RunAxis::iterations && points.size() > 1) points.erase(points.begin());
  return mean_curve({std::move(points)});
}

// Validation loss by iterations, and by the logarithms of the time, of oracle calls and of examples.
Figure figure_of(const std::string& name, const std::vector<TimedResult>& results, const std::string& words) {
  Figure figure{.name = name};
  for (const TimedResult& r : results) figure.labels.push_back(r.label);
  for (const RunAxis axis :
       {RunAxis::iterations, RunAxis::log_seconds, RunAxis::log_calls, RunAxis::log_samples}) {
    Panel panel{.title = words, .x_label = label_of(axis)};
    for (const TimedResult& r : results) panel.curves.push_back(curve_of(r, axis));
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

// A panel for each thing that is varied, the paper's setting in all of them.
Figure ablation_figure(const std::vector<TimedResult>& results) {
  Figure figure{.name = "fsla-figures-5-6"};
  for (const TimedResult& r : results) figure.labels.push_back(r.label);
  for (const std::string varied : {"batch", "delta", "c_tau", "c_eta", "c_beta"}) {
    Panel panel{.title = "validation loss by " + varied, .x_label = label_of(RunAxis::iterations)};
    for (const TimedResult& r : results) {
      const bool shown = &r == &results.front() || r.label.starts_with(varied);
      panel.curves.push_back(shown ? curve_of(r, RunAxis::iterations) : MeanCurve{});
    }
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

constexpr int64_t all_iterations = 2000;

bool is_bp(const TimedResult& r) { return r.label.starts_with("BP"); }
bool is_series_or_cg(const TimedResult& r) { return r.label.starts_with("NS") || r.label.starts_with("CG"); }

// "FSLA surpasses the best BP variant at the 500 iteration": from there on it is below it.
Json passes_bp(const std::vector<TimedResult>& results) {
  constexpr double wanted = 500;
  const std::string text = "FSLA is below the best BP from iteration 500 on (figure 2)";
  const TimedResult& ours = results.front();
  const TimedResult* best = nullptr;
  std::string short_ones;
  for (const TimedResult& r : results) {
    if (!is_bp(r)) continue;
    if (!r.ended_well() || r.end(RunAxis::iterations) < wanted) {
      short_ones += length_text(r, all_iterations) + "; ";
    } else if (!best || r.loss() < best->loss()) {
      best = &r;
    }
  }
  if (!ours.ended_well() || ours.end(RunAxis::iterations) < wanted)
    short_ones += length_text(ours, all_iterations) + "; ";
  if (!short_ones.empty() || !best) return undecided(text, short_ones + "both are needed");
  const double last = std::min(ours.end(RunAxis::iterations), best->end(RunAxis::iterations));
  bool below = true;
  for (const SolveRecord& record : best->summary.records) {
    const double at = position(record, RunAxis::iterations);
    if (at < wanted || at > last) continue;
    below = below && ours.loss_at(RunAxis::iterations, at) < record.outer_loss;
  }
  return claim(
      text, below,
      fmt::format("at iteration 500 FSLA has {:.3f} and {} {:.3f}, at iteration {:.0f}, the last that "
                  "both have, {:.3f} and {:.3f}",
                  ours.loss_at(RunAxis::iterations, wanted), best->label,
                  best->loss_at(RunAxis::iterations, wanted), last, ours.loss_at(RunAxis::iterations, last),
                  best->loss_at(RunAxis::iterations, last)));
}

}  // namespace

Json fsla_cleaning(const ReproduceOptions& options) {
  const RunLengths lengths = options.full()     ? RunLengths{3600, all_iterations, 40}
                             : options.medium() ? RunLengths{300, all_iterations, 25}
                                                : RunLengths{10, all_iterations, 6};
  Json tables = Json::array(), claims = Json::array();
  Json notes = {"QMNIST is not available here: its half of figure 4 is not run.",
                "All methods have FSLA's momentum. METHOD_T_K as in the paper: T inner steps, K terms; T > 1 "
                "begins at the first w each time. A double loop evaluates its hypergradient at two points an "
                "iteration, as the momentum asks.",
                "The figures' values are not in the paper's text, nor the channels of its network."};
  notes.push_back(
      "CG has the Gauss-Newton matrix: on the Hessian most of its solves meet negative curvature, and the "
      "run ends.");
  if (!options.full()) notes.push_back("a network of 4 and 8 channels");
  for (const std::string set : {"mnist", "fashion-mnist"}) {
    const CleaningJob job = load(set, options);
    Json rows = Json::array();
    std::vector<TimedCell> grid;
    for (const TimedRun& run : methods_on(set)) grid.push_back({&job, run, options.seed});
    const std::vector<TimedResult> results = run_timed(grid, lengths, options);
    for (const TimedResult& result : results) rows.push_back(timed_row(result, lengths.seconds));
    const bool mnist = set == "mnist";
    tables.push_back(table(fmt::format("Figure {}: {}, {} iterations, at most {} s each",
                                       mnist ? "2 and 3" : "4", set, lengths.iterations, lengths.seconds),
                           rows));
    save_figure(figure_of(mnist ? "fsla-figures-2-3" : "fsla-figure-4", results, "validation loss, " + set),
                options, notes);
    if (mnist) {
      claims.push_back(passes_bp(results));
      claims.push_back(ahead_along("FSLA is ahead of back-propagation after the same time (figure 2)",
                                   RunAxis::seconds, all_iterations, results, is_bp));
      claims.push_back(ahead_along("FSLA is ahead of NS and CG after the same iterations (figure 3)",
                                   RunAxis::iterations, all_iterations, results, is_series_or_cg));
    }
    claims.push_back(ahead_along(fmt::format("FSLA is ahead of {} after the same time on {} (figure {})",
                                             mnist ? "NS and CG" : "CG", set, mnist ? 3 : 4),
                                 RunAxis::seconds, all_iterations, results, is_series_or_cg));
  }
  if (!options.full() && !options.medium())
    notes.push_back("quick has a small part of the 2000 iterations, where little is decided yet");
  return {{"tables", tables}, {"claims", claims}, {"notes", notes}};
}

Json fsla_ablation(const ReproduceOptions& options) {
  const RunLengths lengths = options.full()     ? RunLengths{3600, all_iterations, 40}
                             : options.medium() ? RunLengths{200, all_iterations, 20}
                                                : RunLengths{8, all_iterations, 4};
  const CleaningJob job = load("mnist", options);
  std::vector<TimedRun> runs = {method("the paper's", "fsla", {})};
  const auto add = [&](const std::string& label, const Rates& rates) {
    runs.push_back(method(label, "fsla", rates));
  };
  add("batch 32", {.batch = 32});
  add("batch 64", {.batch = 64});
  add("batch 512", {.batch = 512});
  // c_eta delta may be at most 1, so that a larger delta takes a smaller c_eta along.
  add("delta 100", {.delta = 100});
  add("delta 2000", {.delta = 2000, .c_eta = 4.5e-4});
  add("c_tau 1e-4", {.c_tau = 1e-4});
  add("c_tau 1e-2", {.c_tau = 1e-2});
  add("c_eta 1e-4", {.c_eta = 1e-4});
  add("c_beta 1e-5", {.c_beta = 1e-5});
  add("c_beta 5e-4", {.c_beta = 5e-4});
  Json rows = Json::array();
  std::map<std::string, TimedResult> found;
  std::vector<TimedCell> grid;
  for (const TimedRun& run : runs) grid.push_back({&job, run, options.seed});
  const std::vector<TimedResult> results = run_timed(grid, lengths, options);
  for (const TimedResult& result : results) {
    rows.push_back(timed_row(result, lengths.seconds));
    found.emplace(result.label, result);
  }
  const auto fails = [&](const TimedResult& r) {
    return !r.ended_well() || r.loss() > r.summary.records.front().outer_loss;
  };
  // What has not diverged may do so later.
  const auto judged = [&](const std::string& text, const std::string& label, bool holds) {
    const TimedResult& r = found.at(label);
    const std::string why =
        fmt::format("{}: validation loss from {:.3f} to {:.3f} in {} iterations{}", label,
                    r.summary.records.front().outer_loss, r.loss(), r.summary.state.iteration,
                    r.ended_well() ? "" : ", where it ended badly");
    const bool open = !fails(r) && r.summary.state.iteration < all_iterations;
    return open ? undecided(text, length_text(r, all_iterations) + "; " + why) : claim(text, holds, why);
  };
  Json claims = Json::array();
  for (const std::string label : {"batch 32", "c_beta 5e-4"}) {
    claims.push_back(judged(label + " does not converge", label, fails(found.at(label))));
  }
  claims.push_back(judged("the paper's settings converge", "the paper's", !fails(found.at("the paper's"))));
  Json notes =
      Json::array({"The paper's text names the settings that diverge and no other value of its grids."});
  if (!options.full()) notes.push_back("a network of 4 and 8 channels");
  save_figure(ablation_figure(results), options, notes);
  return {{"tables",
           Json::array({table(
               fmt::format("Figures 5 and 6: FSLA on mnist, at most {} s each", lengths.seconds), rows)})},
          {"claims", claims},
          {"notes", notes}};
}

}  // namespace bilevel::reproduce
