#include "bilevel/algorithms/solve.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "bilevel/core/errors.h"

namespace bilevel {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// How much of the tightest budget is used, from 0 to 1, and which one that is.
struct Use {
  double part = 0;
  StopReason budget = StopReason::iterations;
};
Use used(const SolveOptions& options, const SolveSummary& summary) {
  Use use{.part = options.iterations == 0 ? 1.0
                                          : static_cast<double>(summary.state.iteration) /
                                                static_cast<double>(options.iterations)};
  const auto compare = [&use](double part, StopReason budget) {
    if (part > use.part) use = {part, budget};
  };
  if (options.seconds > 0) compare(summary.seconds / options.seconds, StopReason::seconds);
  if (options.oracle_calls > 0) {
    compare(static_cast<double>(oracle_calls(summary.counts)) / static_cast<double>(options.oracle_calls),
            StopReason::oracle_calls);
  }
  return use;
}

SolveRecord record_of(const Oracle& oracle, const SolveOptions& options, const SolveSummary& summary,
                      double direction_norm) {
  const AlgorithmState& state = summary.state;
  SolveRecord record;
  record.iteration = state.iteration;
  record.seconds = summary.seconds;
  record.counts = summary.counts;
  record.outer_loss = oracle.outer_loss(state.inner.w, state.x).item<double>();
  record.direction_norm = direction_norm;
  record.metrics = oracle.problem().metrics(state.inner.w, state.x);
  if (options.keep_points) {
    record.x = state.x;
    record.w = state.inner.w;
  }
  return record;
}

}  // namespace

void SolveOptions::validate() const {
  require_count("solve", "iterations", iterations, 0);
  require_count("solve", "oracle_calls", oracle_calls, 0);
  require_count("solve", "records", records, 1);
  for (const auto& [option, value] :
       {std::pair{"seconds", seconds}, std::pair{"direction_tolerance", direction_tolerance}}) {
    if (!(value >= 0) || !std::isfinite(value)) {
      throw std::invalid_argument(fmt::format("solve: {} = {} must be finite and at least 0", option, value));
    }
  }
  batches.validate();
}

std::string_view name_of(StopReason reason) {
  constexpr std::array<std::string_view, 7> names{"not run",   "iterations", "seconds",   "oracle calls",
                                                  "converged", "stopped",    "not finite"};
  return names.at(static_cast<size_t>(reason));
}

SolveSummary solve(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                   const SolveCallback& callback, const Tensor& x, const Tensor& w) {
  options.validate();
  Oracle oracle(problem);
  Streams streams(options.seed, problem.inner_samples(), problem.outer_samples(), options.batches);
  SolveSummary summary;
  summary.algorithm = algorithm.name();
  summary.state =
      algorithm.init(oracle, x.defined() ? x : problem.initial_outer(named_seed(options.seed, "outer start")),
                     w.defined() ? w : problem.initial_inner(named_seed(options.seed, "inner start")));

  double direction_norm = -1;
  bool go_on = true;
  const auto record = [&] {
    const auto begin = Clock::now();
    summary.records.push_back(record_of(oracle, options, summary, direction_norm));
    summary.recording_seconds += seconds_since(begin);
    if (!std::isfinite(summary.records.back().outer_loss)) {
      throw NotFiniteError(fmt::format("{}: the outer loss is {} after {} iterations. Lower the rates.",
                                       algorithm.name(), summary.records.back().outer_loss,
                                       summary.state.iteration));
    }
    if (callback && !callback(summary.records.back(), summary.state)) go_on = false;
  };

  try {
    record();
    int64_t recorded = 0;
    for (Use use = used(options, summary); go_on; use = used(options, summary)) {
      if (use.part >= 1) {
        summary.reason = use.budget;
        break;
      }
      if (const auto due = static_cast<int64_t>(use.part * static_cast<double>(options.records));
          due > recorded) {
        recorded = due;
        record();
        if (!go_on) break;
      }
      const auto begin = Clock::now();
      const IterationSummary step = algorithm.step(oracle, summary.state, streams);
      direction_norm = step.direction.norm().item<double>();
      summary.seconds += seconds_since(begin);
      summary.counts = oracle.counts();
      ++summary.statuses[std::string(name_of(step.status))];
      if (direction_norm < options.direction_tolerance) {
        summary.reason = StopReason::converged;
        break;
      }
    }
    if (summary.reason == StopReason::not_run) summary.reason = StopReason::stopped;
    if (summary.records.back().iteration != summary.state.iteration) record();
  } catch (const NotFiniteError& error) {
    summary.reason = StopReason::not_finite;
    summary.message = error.what();
    summary.counts = oracle.counts();
  }
  return summary;
}

}  // namespace bilevel
