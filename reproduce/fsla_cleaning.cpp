// FSLA (Li, Gu and Huang 2022), section 6.2 and appendix E: cleaning labels with a small convolutional
// network.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "reproduce/runs.h"

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
  // The paper has no sizes for its "4-layer CNN". Quick takes a quarter of the channels.
  CnnOptions cnn;
  if (!options.full()) cnn = {.first_channels = 4, .second_channels = 8, .hidden = 32};
  job.model = make_cnn_cleaning(job.sets, cnn, options.tensors);
  return job;
}

struct Rates {
  double delta = 1000, c_tau = 1e-3, c_beta = 1e-4, c_eta = 9e-4;
  int64_t batch = 256;
};

// Every rule's rates fall like delta c / sqrt(k + 1), as in Algorithm 1.
TimedRun method(const std::string& label, const std::string& algorithm, const Rates& rates, int64_t T = 1,
                int64_t K = 1) {
  TimedRun run;
  run.label = label;
  run.algorithm = algorithm;
  AlgorithmSettings& s = run.settings;
  s.inner.rate = rates.delta * rates.c_tau;
  s.inner.steps = T;
  s.linear_rate = algorithm == "single-loop-neumann" ? 0.1 : rates.delta * rates.c_beta;
  s.momentum_decay = rates.delta * rates.c_eta;
  s.hypergradient.terms = K;
  s.outer.rate = rates.delta;
  s.outer.schedule.kind = ScheduleKind::inverse_sqrt;
  run.batches = {.inner_batch = rates.batch, .outer_batch = rates.batch};
  return run;
}

struct Lengths {
  double seconds;
  int64_t iterations, records;
};

std::string losses_text(const std::vector<TimedResult>& results) {
  std::string text;
  for (const TimedResult& r : results)
    text += fmt::format("{}{} {:.3f}", text.empty() ? "" : ", ", r.label, r.loss());
  return text;
}

}  // namespace

Json fsla_cleaning(const ReproduceOptions& options) {
  const Lengths lengths = options.full() ? Lengths{600, 2000, 40} : Lengths{13, 2000, 6};
  Json tables = Json::array(), claims = Json::array();
  for (const std::string set : {"mnist", "fashion-mnist"}) {
    const CleaningJob job = load(set, options);
    std::vector<TimedRun> runs = {method("FSLA", "fsla", {}), method("CG_1_10", "single-loop-cg", {}, 1, 10)};
    if (set == "mnist") {
      runs.push_back(method("CG_1_1", "single-loop-cg", {}, 1, 1));
      runs.push_back(method("NS_1_10", "single-loop-neumann", {}, 1, 10));
      runs.push_back(method("BP_5", "reverse", {}, 5));
      runs.push_back(method("BP_20", "reverse", {}, 20));
    }
    Json rows = Json::array();
    std::vector<TimedResult> results;
    for (const TimedRun& run : runs) {
      results.push_back(run_timed(job, run, lengths.seconds, lengths.iterations, lengths.records, options));
      rows.push_back(timed_row(results.back(), lengths.seconds));
    }
    tables.push_back(table(fmt::format("Figure {}: {}, at most {} s each", set == "mnist" ? "2 and 3" : "4",
                                       set, lengths.seconds),
                           rows));
    const double ours = results.front().loss();
    bool beats_bp = true, beats_others = true;
    for (size_t i = 1; i < results.size(); ++i) {
      const bool finite = !ended_badly(results[i].summary.reason);
      const bool better = !finite || ours < results[i].loss();
      (results[i].label.starts_with("BP") ? beats_bp : beats_others) &= better;
    }
    if (set == "mnist") {
      claims.push_back(claim("FSLA is ahead of back-propagation after the same time (figure 2)", beats_bp,
                             "validation losses: " + losses_text(results)));
    }
    claims.push_back(claim(fmt::format("FSLA is ahead of NS and CG after the same time on {} (figure {})",
                                       set, set == "mnist" ? 3 : 4),
                           beats_others, "validation losses: " + losses_text(results)));
  }
  Json notes = {"QMNIST is not available here: its half of figure 4 is not run.",
                "BP is reverse mode from the first w without the STORM momentum that the paper gives all "
                "methods; NS and CG "
                "have it. METHOD_T_K as in the paper: T inner steps, K terms.",
                "The figures' values are not in the paper's text."};
  if (!options.full())
    notes.push_back("quick has a small part of the 2000 iterations, where little is decided yet");
  return {{"tables", tables}, {"claims", claims}, {"notes", notes}};
}

Json fsla_ablation(const ReproduceOptions& options) {
  const Lengths lengths = options.full() ? Lengths{300, 2000, 20} : Lengths{8, 2000, 4};
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
  for (const TimedRun& run : runs) {
    TimedResult result = run_timed(job, run, lengths.seconds, lengths.iterations, lengths.records, options);
    rows.push_back(timed_row(result, lengths.seconds));
    found.emplace(run.label, std::move(result));
  }
  const auto fails = [&](const std::string& label) {
    const TimedResult& r = found.at(label);
    return ended_badly(r.summary.reason) || r.loss() > r.summary.records.front().outer_loss;
  };
  Json claims = Json::array();
  for (const std::string label : {"batch 32", "c_beta 5e-4"}) {
    claims.push_back(
        claim(label + " does not converge", fails(label),
              fmt::format("validation loss {:.3f} after {} iterations, {:.3f} with the paper's settings",
                          found.at(label).loss(), found.at(label).summary.state.iteration,
                          found.at("the paper's").loss())));
  }
  claims.push_back(
      claim("the paper's settings converge", !fails("the paper's"),
            fmt::format("from {:.3f} to {:.3f}", found.at("the paper's").summary.records.front().outer_loss,
                        found.at("the paper's").loss())));
  Json notes =
      Json::array({"The paper's text names the settings that diverge and no other value of its grids."});
  if (!options.full()) {
    notes.push_back("quick has a small part of the 2000 iterations: what diverges later is not seen");
  }
  return {{"tables",
           Json::array({table(
               fmt::format("Figures 5 and 6: FSLA on mnist, at most {} s each", lengths.seconds), rows)})},
          {"claims", claims},
          {"notes", notes}};
}

}  // namespace bilevel::reproduce
