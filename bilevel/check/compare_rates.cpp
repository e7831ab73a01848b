#include "bilevel/check/compare_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include "bilevel/core/random.h"

namespace bilevel {
namespace {

constexpr double probed_part = 0.05;  // of a budget, to learn how long an iteration takes

bool ends_with_run(const Schedule& schedule) {
  return schedule.kind == ScheduleKind::cosine || schedule.kind == ScheduleKind::linear;
}

// `part` of every limit that there is, but at least one call.
SolveOptions part_of_budget(SolveOptions budget, double part) {
  budget.seconds *= part;
  if (budget.oracle_calls > 0) {
    const double calls = std::ceil(part * static_cast<double>(budget.oracle_calls));
    budget.oracle_calls = std::max<int64_t>(1, static_cast<int64_t>(calls));
  }
  return budget;
}

AlgorithmSettings with_rates(AlgorithmSettings settings, double inner_factor, double outer_rate) {
  settings.inner.rate *= inner_factor;
  settings.linear_rate *= inner_factor;
  settings.outer.rate = outer_rate;
  return settings;
}

// nullopt where a seed diverges. The highest value counts, because a noisy algorithm can be lucky once with a
// rate that is too large.
std::optional<RateCandidate> tried_rates(const Problem& problem, const Competitor& one,
                                         const AlgorithmSettings& settings, SolveOptions options,
                                         const std::vector<uint64_t>& seeds, const Score& score) {
  RateCandidate result{
      .settings = settings, .value = -std::numeric_limits<double>::infinity(), .lowers = true};
  options.settings = settings;
  const auto algorithm = one.make(settings);
  for (const uint64_t seed : seeds) {
    options.seed = seed;
    const SolveSummary summary = solve(problem, *algorithm, options);
    if (ended_badly(summary.reason)) return std::nullopt;
    const auto first = score(summary.records.front()), last = score(summary.records.back());
    if (!first || !last || !std::isfinite(*first) || !std::isfinite(*last)) return std::nullopt;
    result.value = std::max(result.value, *last);
    result.lowers = result.lowers && *last < *first;
  }
  return result;
}

}  // namespace

std::vector<Competitor> competitors(const CompareOptions& options) {
  std::vector<Competitor> all;
  for (const std::string& name : options.algorithms) {
    const AlgorithmRow& row = find_algorithm(name);
    all.push_back({.name = name, .family = row.family, .make = row.make, .of_registry = true});
  }
  for (const OwnAlgorithm& own : options.own) {
    if (static_cast<bool>(own.make) == static_cast<bool>(own.as_it_is)) {
      throw std::invalid_argument("compare: own: give `make` or `as_it_is`, not both");
    }
    const std::string name(own.as_it_is ? own.as_it_is->name() : own.make(options.settings)->name());
    if (own.as_it_is && options.solve.on_failure != OnFailure::stop) {
      throw std::invalid_argument(
          fmt::format("compare: on_failure = {} needs `make` of your own algorithm '{}'",
                      name_of(options.solve.on_failure), name));
    }
    all.push_back({.name = name, .family = own.family, .make = own.make, .as_it_is = own.as_it_is});
  }
  std::set<std::string> seen;
  for (const Competitor& one : all) {
    if (!seen.insert(one.name).second) {
      throw std::invalid_argument(fmt::format("compare: algorithms: algorithm {} is listed twice", one.name));
    }
  }
  return all;
}

StreamOptions batches_of(const CompareOptions& options, const Competitor& one) {
  return one.family == Family::stochastic ? options.stochastic_batches : options.solve.batches;
}

bool has_schedule_with_end(const AlgorithmSettings& settings) {
  return ends_with_run(settings.inner.schedule) || ends_with_run(settings.outer.schedule);
}

AlgorithmSettings with_schedule_end(AlgorithmSettings settings, int64_t iterations) {
  const int64_t most = std::numeric_limits<int64_t>::max() / std::max<int64_t>(settings.inner.steps, 1);
  settings.outer.schedule.total_steps = std::max<int64_t>(iterations, 1);
  settings.inner.schedule.total_steps =
      std::max<int64_t>(std::min(iterations, most) * std::max<int64_t>(settings.inner.steps, 1), 1);
  return settings;
}

int64_t iterations_within(const Problem& problem, const Competitor& one, AlgorithmSettings settings,
                          const SolveOptions& budget) {
  if (budget.seconds == 0 && budget.oracle_calls == 0) return budget.iterations;
  settings.inner.schedule = {};
  settings.outer.schedule = {};
  SolveOptions probe = part_of_budget(budget, probed_part);
  probe.records = 1;
  probe.on_failure = OnFailure::stop;
  probe.settings = settings;
  const SolveSummary summary = solve(problem, *one.make(settings), probe);
  const auto done = static_cast<double>(summary.state.iteration);
  if (done == 0) return budget.iterations;
  double used = 0;
  if (budget.seconds > 0) used = summary.seconds / budget.seconds;
  if (budget.oracle_calls > 0) {
    const auto calls = static_cast<double>(oracle_calls(summary.counts));
    used = std::max(used, calls / static_cast<double>(budget.oracle_calls));
  }
  return std::clamp<int64_t>(std::llround(done / used), 1, std::max<int64_t>(budget.iterations, 1));
}

RateCandidates search_rates(const Problem& problem, const CompareOptions& options, const Competitor& one,
                            int64_t iterations, const Score& score, const CompareProgress& progress) {
  const RateSearch& search = options.search;
  // Batches of its own: rates must not be fitted to the seeds that are reported.
  const uint64_t own = named_seed(options.seeds.front(), "search for rates");
  const std::vector<uint64_t> seeds = {own, mix_seeds(own, 1)};
  const double part =
      1.0 / static_cast<double>(search.inner_factors.size() * search.outer_rates.size() * seeds.size());
  SolveOptions all = options.solve;
  all.batches = batches_of(options, one);
  if (search.seconds > 0) all.seconds = search.seconds;
  SolveOptions run = part_of_budget(all, part);
  run.records = 1;
  run.on_failure = OnFailure::stop;  // a rate that needs a repair is no candidate
  run.keep_points = true;
  const bool limited = run.seconds > 0 || run.oracle_calls > 0;
  const auto run_iterations =
      limited ? static_cast<int64_t>(std::ceil(part * static_cast<double>(iterations))) : iterations;
  const AlgorithmSettings settings = with_schedule_end(options.settings, run_iterations);

  RateCandidates result;
  for (const double factor : search.inner_factors) {
    for (const double rate : search.outer_rates) {
      const AlgorithmSettings candidate = with_rates(settings, factor, rate);
      if (progress) {
        progress(
            fmt::format("{}: inner rate {:.3g}, outer rate {:.3g}", one.name, candidate.inner.rate, rate));
      }
      ++result.tried;
      if (auto ended_well = tried_rates(problem, one, candidate, run, seeds, score)) {
        result.best_first.push_back(std::move(*ended_well));
      } else {
        ++result.failed;
      }
    }
  }
  std::stable_sort(result.best_first.begin(), result.best_first.end(),
                   [](const RateCandidate& a, const RateCandidate& b) { return a.value < b.value; });
  if (result.best_first.empty()) {
    const auto least = [](const std::vector<double>& rates) {
      return *std::min_element(rates.begin(), rates.end());
    };
    result.best_first.push_back(
        {.settings = with_rates(settings, least(search.inner_factors), least(search.outer_rates))});
  }
  return result;
}

}  // namespace bilevel
