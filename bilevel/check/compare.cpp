#include "bilevel/check/compare.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include "bilevel/check/references.h"
#include "bilevel/core/random.h"

namespace bilevel {
namespace {

constexpr int64_t largest_newton = 1000;

StreamOptions batches_of(const CompareOptions& options, const AlgorithmRow& row) {
  return row.family == Family::stochastic ? options.stochastic_batches : options.solve.batches;
}

ComparedRecord measured(const Problem& problem, bool measure_value, SolveRecord record) {
  ComparedRecord result;
  result.value = record.outer_loss;
  if (measure_value) {
    Oracle oracle(problem);
    const ImplicitReference reference = implicit_reference(oracle, record.x, record.w);
    if (reference.inner.solved) result.value = oracle.outer_loss(reference.inner.w, record.x).item<double>();
    if (reference.value.defined()) result.gradient_norm = reference.value.norm().item<double>();
  }
  record.x = Tensor();
  record.w = Tensor();
  result.record = std::move(record);
  return result;
}

AlgorithmSettings with_rates(AlgorithmSettings settings, double inner_factor, double outer_rate) {
  settings.inner.rate *= inner_factor;
  settings.linear_rate *= inner_factor;
  settings.outer.rate = outer_rate;
  return settings;
}

// The highest value that the seeds end at; infinity where one leaves the finite numbers. The highest, because
// a noisy rule can be lucky once with a rate that is too large.
double worst_value(const Problem& problem, const Algorithm& algorithm, SolveOptions options,
                   const std::vector<uint64_t>& seeds, bool measure_value) {
  double worst = -std::numeric_limits<double>::infinity();
  for (const uint64_t seed : seeds) {
    options.seed = seed;
    const SolveSummary summary = solve(problem, algorithm, options);
    if (ended_badly(summary.reason)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, measured(problem, measure_value, summary.records.back()).value);
  }
  return worst;
}

// The rates of the lowest value within the same time for every candidate.
AlgorithmSettings search_rates(const Problem& problem, const CompareOptions& options, const AlgorithmRow& row,
                               bool measure_value, ComparedAlgorithm& result,
                               const CompareProgress& progress) {
  const RateSearch& search = options.search;
  // Batches of its own: rates must not be fitted to the seeds that are reported.
  const uint64_t own = named_seed(options.seeds.front(), "search for rates");
  const std::vector<uint64_t> search_seeds = {own, mix_seeds(own, 1)};
  const auto count =
      static_cast<double>(search.inner_factors.size() * search.outer_rates.size() * search_seeds.size());
  SolveOptions solve_options = options.solve;
  solve_options.batches = batches_of(options, row);
  solve_options.records = 1;
  solve_options.on_failure = OnFailure::stop;  // a rate that needs a repair is no candidate
  solve_options.keep_points = true;
  const double seconds = search.seconds > 0 ? search.seconds : options.solve.seconds;
  if (seconds > 0) solve_options.seconds = seconds / count;
  if (options.solve.oracle_calls > 0) {
    solve_options.oracle_calls = std::max<int64_t>(
        1, static_cast<int64_t>(std::ceil(static_cast<double>(options.solve.oracle_calls) / count)));
  }
  double best = std::numeric_limits<double>::infinity();
  AlgorithmSettings chosen =
      with_rates(options.settings, search.inner_factors.back(), search.outer_rates.front());
  for (const double factor : search.inner_factors) {
    for (const double rate : search.outer_rates) {
      const AlgorithmSettings candidate = with_rates(options.settings, factor, rate);
      if (progress) {
        progress(
            fmt::format("{}: inner rate {:.3g}, outer rate {:.3g}", row.name, candidate.inner.rate, rate));
      }
      ++result.candidates;
      solve_options.settings = candidate;
      const double value =
          worst_value(problem, *row.make(candidate), solve_options, search_seeds, measure_value);
      if (!std::isfinite(value)) ++result.failed_candidates;
      if (value < best) {
        best = value;
        chosen = candidate;
      }
    }
  }
  if (!std::isfinite(best)) {
    throw std::invalid_argument(fmt::format(
        "compare: {} left the finite numbers with every pair of rates that was tried; give smaller ones",
        row.name));
  }
  return chosen;
}

const ComparedRecord& last_up_to(const ComparedRun& run, CurveAxis axis, double used) {
  const ComparedRecord* found = &run.records.front();
  for (const ComparedRecord& record : run.records) {
    const double at = axis == CurveAxis::seconds ? record.record.seconds
                                                 : static_cast<double>(oracle_calls(record.record.counts));
    if (at <= used) found = &record;
  }
  return *found;
}

}  // namespace

void RateSearch::validate() const {
  if (!(seconds >= 0) || !std::isfinite(seconds)) {
    throw std::invalid_argument(
        fmt::format("compare: search seconds = {} must be finite and at least 0", seconds));
  }
  for (const auto& rates : {outer_rates, inner_factors}) {
    if (rates.empty()) throw std::invalid_argument("compare: the search for rates has no candidates");
    for (const double rate : rates) require_rate("compare", "a candidate rate", rate);
  }
}

void CompareOptions::validate() const {
  if (algorithms.empty()) throw std::invalid_argument("compare: algorithms: name at least one");
  if (seeds.empty()) throw std::invalid_argument("compare: seeds: name at least one");
  std::set<std::string> seen;
  for (const std::string& name : algorithms) {
    find_algorithm(name);
    if (!seen.insert(name).second) {
      throw std::invalid_argument(fmt::format("compare: algorithms: {} stands there twice", name));
    }
  }
  solve.validate();
  stochastic_batches.validate();
  search.validate();
}

MeanAndSpread mean_and_spread(const std::vector<double>& values) {
  MeanAndSpread result;
  if (values.empty()) return result;
  for (const double value : values) result.mean += value / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  if (values.size() > 1) result.spread = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return result;
}

std::vector<CurvePoint> curve(const ComparedAlgorithm& algorithm, CurveAxis axis, int64_t points) {
  // As far as the shortest run went: beyond it the mean would be over other seeds.
  double end = std::numeric_limits<double>::infinity();
  for (const ComparedRun& run : algorithm.runs) {
    const SolveRecord& last = run.records.back().record;
    end = std::min(
        end, axis == CurveAxis::seconds ? last.seconds : static_cast<double>(oracle_calls(last.counts)));
  }
  std::vector<CurvePoint> result;
  for (int64_t i = 0; i <= points; ++i) {
    CurvePoint point;
    point.used = end * static_cast<double>(i) / static_cast<double>(points);
    std::vector<double> values, norms;
    for (const ComparedRun& run : algorithm.runs) {
      const ComparedRecord& record = last_up_to(run, axis, point.used);
      values.push_back(record.value);
      norms.push_back(record.gradient_norm);
    }
    point.value = mean_and_spread(values);
    point.gradient_norm = mean_and_spread(norms);
    result.push_back(point);
  }
  return result;
}

std::vector<ComparedAlgorithm> compare_algorithms(const Problem& problem, const CompareOptions& options,
                                                  const CompareProgress& progress) {
  options.validate();
  const bool measure_value =
      options.measure_value && problem.initial_inner(options.seeds.front()).numel() <= largest_newton;
  std::vector<ComparedAlgorithm> results;
  for (const std::string& name : options.algorithms) {
    const AlgorithmRow& row = find_algorithm(name);
    ComparedAlgorithm result;
    result.name = name;
    result.family = row.family;
    CompareOptions own = options;
    if (row.family == Family::cold) own.settings.inner.steps = options.cold_steps;
    const AlgorithmSettings settings =
        options.search.on ? search_rates(problem, own, row, measure_value, result, progress) : own.settings;
    result.inner_steps = settings.inner.steps;
    result.inner_rate = settings.inner.rate;
    result.outer_rate = settings.outer.rate;
    for (const uint64_t seed : options.seeds) {
      if (progress) progress(fmt::format("{}: seed {}", name, seed));
      SolveOptions solve_options = options.solve;
      solve_options.seed = seed;
      solve_options.batches = batches_of(options, row);
      solve_options.keep_points = true;
      solve_options.settings = settings;
      ComparedRun run;
      run.seed = seed;
      run.summary = solve(problem, *row.make(settings), solve_options);
      for (SolveRecord& record : run.summary.records) {
        run.records.push_back(measured(problem, measure_value, std::move(record)));
      }
      run.summary.records.clear();
      result.runs.push_back(std::move(run));
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace bilevel
