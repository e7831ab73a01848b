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
  constexpr std::array<std::string_view, 8> names{"not run",   "iterations", "seconds",    "oracle calls",
                                                  "converged", "stopped",    "not finite", "interrupted"};
  return names.at(static_cast<size_t>(reason));
}

namespace {

// One run, from any state to its end.
class SolveRun {
 public:
  SolveRun(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options, SolveState state,
           const SolveHooks& hooks)
      : algorithm_(algorithm),
        options_(options),
        hooks_(hooks),
        oracle_(problem),
        streams_(options.seed, problem.inner_samples(), problem.outer_samples(), options.batches),
        state_(std::move(state)),
        counts_before_(state_.so_far.counts) {
    streams_.seek(state_.streams);
    state_.so_far.reason = StopReason::not_run;
    state_.so_far.message.clear();
  }

  SolveSummary run() {
    SolveSummary& summary = state_.so_far;
    try {
      if (summary.records.empty()) record();
      if (converged()) summary.reason = StopReason::converged;  // and was killed before it could say so
      while (summary.reason == StopReason::not_run) iterate();
      const bool more_to_come = summary.reason == StopReason::interrupted;
      if (!more_to_come && summary.records.back().iteration != summary.state.iteration) record();
    } catch (const NotFiniteError& error) {
      summary.reason = StopReason::not_finite;
      summary.message = error.what();
      summary.counts = counts();
    }
    save();
    return std::move(summary);
  }

 private:
  OracleCounts counts() const {
    OracleCounts all = counts_before_;
    return all += oracle_.counts();
  }

  bool converged() const {
    return state_.direction_norm >= 0 && state_.direction_norm < options_.direction_tolerance;
  }

  void iterate() {
    SolveSummary& summary = state_.so_far;
    const Use use = used(options_, summary);
    if (use.part >= 1) {
      summary.reason = use.budget;
      return;
    }
    if (const auto due = static_cast<int64_t>(use.part * static_cast<double>(options_.records));
        due > state_.recorded) {
      state_.recorded = due;
      record();
      if (summary.reason != StopReason::not_run) return;
    }
    if (seconds_since(saved_) >= hooks_.save_seconds) save();
    const auto begin = Clock::now();
    const IterationSummary step = algorithm_.step(oracle_, summary.state, streams_);
    state_.direction_norm = step.direction.norm().item<double>();
    summary.seconds += seconds_since(begin);
    summary.counts = counts();
    ++summary.statuses[std::string(name_of(step.status))];
    if (hooks_.step) hooks_.step(summary.state, state_.direction_norm, summary.seconds);
    if (converged()) {
      summary.reason = StopReason::converged;
    } else if (hooks_.interrupted && hooks_.interrupted()) {
      summary.reason = StopReason::interrupted;
    }
  }

  void record() {
    SolveSummary& summary = state_.so_far;
    const auto begin = Clock::now();
    summary.records.push_back(record_of(oracle_, options_, summary, state_.direction_norm));
    summary.recording_seconds += seconds_since(begin);
    if (!std::isfinite(summary.records.back().outer_loss)) {
      throw NotFiniteError(fmt::format("{}: the outer loss is {} after {} iterations. Lower the rates.",
                                       algorithm_.name(), summary.records.back().outer_loss,
                                       summary.state.iteration));
    }
    if (hooks_.record && !hooks_.record(summary.records.back(), summary.state)) {
      summary.reason = StopReason::stopped;
    }
  }

  void save() {
    saved_ = Clock::now();
    if (!hooks_.save) return;
    state_.streams = streams_.positions();
    hooks_.save(state_);
  }

  const Algorithm& algorithm_;
  const SolveOptions& options_;
  const SolveHooks& hooks_;
  Oracle oracle_;
  Streams streams_;
  SolveState state_;
  OracleCounts counts_before_;
  Clock::time_point saved_ = Clock::now();
};

}  // namespace

SolveSummary solve(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                   const SolveHooks& hooks, const Tensor& x, const Tensor& w) {
  options.validate();
  const Oracle oracle(problem);
  SolveState state;
  state.so_far.algorithm = algorithm.name();
  state.so_far.state =
      algorithm.init(oracle, x.defined() ? x : problem.initial_outer(named_seed(options.seed, "outer start")),
                     w.defined() ? w : problem.initial_inner(named_seed(options.seed, "inner start")));
  return SolveRun(problem, algorithm, options, std::move(state), hooks).run();
}

SolveSummary continue_solve(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                            SolveState state, const SolveHooks& hooks) {
  options.validate();
  if (state.so_far.algorithm != algorithm.name()) {
    throw std::invalid_argument(
        fmt::format("solve: the state is one of {}, not of {}", state.so_far.algorithm, algorithm.name()));
  }
  return SolveRun(problem, algorithm, options, std::move(state), hooks).run();
}

}  // namespace bilevel
