// stocBiO (Ji, Yang and Liang 2021), figure 4: stocBiO, BSA, TTSA and HOAG on noisy MNIST, each with the same
// time, the rates chosen from the paper's grids by the lowest validation loss after the same short time.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "reproduce/runs.h"

namespace bilevel::reproduce {
namespace {

CleaningJob load(double corruption, const ReproduceOptions& options) {
  options.progress(fmt::format("reading mnist, corruption {}", corruption));
  NamedCleaningOptions named = named_set("mnist", options);
  named.train = 20000;
  named.valid = 5000;
  named.test_on_rest = false;  // the 10,000 of the test file
  named.corruption = corruption;
  CleaningJob job;
  job.sets = make_named_cleaning_sets(named);
  job.model = make_linear_cleaning(job.sets, 0.001, options.tensors);
  return job;
}

// T as the paper's grid has it, for what each rule costs; Q = 3, eta = 0.5 as in its grids. BSA and TTSA draw
// single examples, HOAG takes full sets and solves to its tolerances, without T and Q.
TimedRun candidate(const std::string& algorithm, double inner_rate, double outer_rate) {
  TimedRun run;
  run.label = run.algorithm = algorithm;
  run.settings.inner.rate = inner_rate;
  run.settings.inner.steps = 10;
  run.settings.hypergradient.terms = 3;
  run.settings.linear_rate = 0.5;
  run.settings.outer.optimizer = "adam";
  run.settings.outer.rate = outer_rate;
  if (algorithm != "hoag") run.batches = {.inner_batch = 50, .outer_batch = 50};
  return run;
}

TimedRun search(const CleaningJob& job, const std::string& algorithm, double seconds,
                const ReproduceOptions& options) {
  TimedRun best;
  double lowest = std::numeric_limits<double>::infinity();
  std::vector<double> outer_rates = {1e-2, 1e-1, 1};
  if (options.full()) outer_rates = {1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1};
  for (const double inner_rate : {0.1, 1.0}) {
    for (const double outer_rate : outer_rates) {
      const TimedRun run = candidate(algorithm, inner_rate, outer_rate);
      const TimedResult result = run_timed(job, run, seconds, 1'000'000, 1, options);
      if (!ended_badly(result.summary.reason) && result.loss() < lowest) {
        lowest = result.loss();
        best = run;
      }
    }
  }
  if (best.algorithm.empty())
    throw std::runtime_error(algorithm + " left the finite numbers with every pair of rates");
  return best;
}

}  // namespace

Json stocbio_cleaning(const ReproduceOptions& options) {
  const double run_seconds = options.full() ? 60 : 7, search_seconds = options.full() ? 5 : 0.7;
  const std::vector<std::string> algorithms = {"stocbio", "bsa", "ttsa", "hoag"};
  Json tables = Json::array(), claims = Json::array();
  std::map<double, std::map<std::string, TimedResult>> found;
  for (const double corruption : {0.1, 0.4}) {
    const CleaningJob job = load(corruption, options);
    Json rows = Json::array();
    for (const std::string& algorithm : algorithms) {
      const TimedRun run = search(job, algorithm, search_seconds, options);
      TimedResult result = run_timed(job, run, run_seconds, 10'000'000, 30, options);
      Json row = timed_row(result, run_seconds);
      row["inner rate"] = run.settings.inner.rate;
      row["outer rate"] = run.settings.outer.rate;
      rows.push_back(row);
      found[corruption].emplace(algorithm, std::move(result));
    }
    tables.push_back(table(fmt::format("Figure 4, corruption {}: {} s each", corruption, run_seconds), rows));
    const auto& here = found[corruption];
    const double ours = here.at("stocbio").test_loss;
    const auto rival = std::min_element(here.begin(), here.end(), [](const auto& a, const auto& b) {
      return (a.first == "stocbio" ? 1e9 : a.second.test_loss) <
             (b.first == "stocbio" ? 1e9 : b.second.test_loss);
    });
    claims.push_back(claim(fmt::format("stocBiO is fastest in test loss at corruption {}", corruption),
                           ours <= rival->second.test_loss,
                           fmt::format("{:.4f} against {:.4f} of {} after the same time", ours,
                                       rival->second.test_loss, rival->first)));
  }
  // The gap to HOAG, the best of the others in the paper, in validation loss at a third of the time.
  const auto gap = [&](double corruption) {
    return found[corruption].at("hoag").at_seconds(run_seconds / 3).outer_loss -
           found[corruption].at("stocbio").at_seconds(run_seconds / 3).outer_loss;
  };
  claims.push_back(
      claim("the gap is larger at the smaller corruption", gap(0.1) > std::max(gap(0.4), 0.0),
            fmt::format("HOAG is behind by {:.4f} at 0.1 and by {:.4f} at 0.4", gap(0.1), gap(0.4))));
  bool slow = true;
  for (const double corruption : {0.1, 0.4}) {
    for (const auto& [name, result] : found[corruption]) {
      slow = slow && (name == "ttsa" || result.loss() < found[corruption].at("ttsa").loss());
    }
  }
  claims.push_back(claim("TTSA converges slowest", slow,
                         fmt::format("validation loss {:.3f} and {:.3f} after the same time",
                                     found[0.1].at("ttsa").loss(), found[0.4].at("ttsa").loss())));
  return {{"tables", tables},
          {"claims", claims},
          {"notes",
           {"The paper's text has no values for this figure and no corruption rates; its repository has 0.1 "
            "and 0.4.",
            fmt::format("Rates: {} s for each pair of a part of the paper's grids, T = 10, eta = 0.5, Q = 3; "
                        "Adam outside.",
                        search_seconds)}}};
}

}  // namespace bilevel::reproduce
