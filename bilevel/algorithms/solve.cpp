#include "bilevel/algorithms/solve.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bilevel/algorithms/options.h"
#include "bilevel/algorithms/resumable.h"
#include "bilevel/core/errors.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

// In seconds, from any beginning.
double time_now(const SolveOptions& options) {
  if (options.processor_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How much of the tightest budget is used, and which one that is.
struct Use {
  double done = 0, all = 0;
  StopReason budget = StopReason::iterations;
  bool up() const { return done >= all; }
  // Of this many records, evenly along the budget. The product comes first: 55 of 150 times 150 is less than
  // 55, and one record in thirty would be left out where every iteration is to have one.
  int64_t due(int64_t records) const {
    return static_cast<int64_t>(done * static_cast<double>(records) / all);
  }
};
Use used(const SolveOptions& options, const SolveSummary& summary) {
  Use use{.done = static_cast<double>(summary.state.iteration),
          .all = static_cast<double>(options.iterations)};
  const auto compare = [&use](double done, double all, StopReason budget) {
    if (done * use.all > use.done * all) use = {done, all, budget};
  };
  if (options.seconds > 0) compare(summary.seconds, options.seconds, StopReason::seconds);
  if (options.oracle_calls > 0) {
    compare(static_cast<double>(oracle_calls(summary.counts)), static_cast<double>(options.oracle_calls),
            StopReason::oracle_calls);
  }
  return use;
}

SolveRecord record_of(const Problem& problem, const Algorithm& algorithm, const SolveSummary& summary,
                      double direction_norm, const ErrorBound& bound) {
  const AlgorithmState& state = summary.state;
  Oracle oracle(problem);  // not counted
  const InnerSolution inner = algorithm.inner_solution(oracle, state);
  SolveRecord record;
  record.iteration = state.iteration;
  record.seconds = summary.seconds;
  record.counts = summary.counts;
  record.outer_loss = oracle.outer_loss(inner.w, state.x).item<double>();
  record.direction_norm = direction_norm;
  record.bound = bound;
  record.metrics = problem.metrics(inner.w, state.x);
  record.x = state.x;
  record.w = inner.w;
  record.x_of_w = inner.x;
  return record;
}

}  // namespace

void SolveOptions::validate() const {
  require_at_least("solve", "iterations", iterations, 0);
  require_at_least("solve", "oracle_calls", oracle_calls, 0);
  require_at_least("solve", "records", records, 1);
  require_at_least("solve", "most_repairs", most_repairs, 0);
  if (on_failure != OnFailure::stop && !settings) {
    throw std::invalid_argument(fmt::format(
        "solve: on_failure = {} needs the settings that the algorithm was made from", name_of(on_failure)));
  }
  for (const auto& [option, value] :
       {std::pair{"seconds", seconds}, std::pair{"direction_tolerance", direction_tolerance}}) {
    require_nonnegative("solve", option, value);
  }
  batches.validate();
}

std::string_view name_of(StopReason reason) {
  constexpr std::array<std::string_view, 9> names{"not run",      "iterations",  "seconds",
                                                  "oracle calls", "converged",   "stopped",
                                                  "not finite",   "interrupted", "failed"};
  return names.at(static_cast<size_t>(reason));
}

namespace {

// One run, from any state to its end.
class SolveRun {
 public:
  SolveRun(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options, SolveState state,
           const SolveHooks& hooks)
      : algorithm_(&algorithm),
        options_(options),
        hooks_(hooks),
        loop_(hooks),
        oracle_(problem),
        streams_(options.seed, problem.inner_samples(), problem.outer_samples(), options.batches),
        state_(std::move(state)),
        counts_before_(state_.so_far.counts) {
    streams_.seek(state_.streams);
    state_.so_far.reason = StopReason::not_run;
    state_.so_far.message.clear();
    // A run that a failure ended is continued, and may or may not fail again.
    if (auto& failures = state_.so_far.failures;
        !failures.empty() && failures.back().answer == FailureAnswer::ended) {
      failures.pop_back();
    }
    if (!state_.good.x.defined()) state_.good = state_.so_far.state;
    if (!state_.adjustment.is_none()) remake();
  }

  SolveSummary run() {
    SolveSummary& summary = state_.so_far;
    if (summary.records.empty()) record();
    // It had stopped, but was killed before it could report that.
    if (summary.reason == StopReason::not_run && state_.stopped) summary.reason = StopReason::stopped;
    if (summary.reason == StopReason::not_run && converged()) summary.reason = StopReason::converged;
    while (summary.reason == StopReason::not_run) {
      iterate();
      if (has_ended(summary.reason) && state_.watch.solves.most_failed()) end_for_failed_solves();
      const bool at_the_end = summary.reason != StopReason::not_run && !ended_badly(summary.reason) &&
                              summary.reason != StopReason::interrupted;
      if (at_the_end && summary.records.back().iteration != summary.state.iteration) record();
    }
    save();
    Oracle uncounted(oracle_.problem());
    summary.inner_solution = algorithm_->inner_solution(uncounted, summary.state).w;
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
    if (use.up()) {
      summary.reason = use.budget;
      return;
    }
    if (const int64_t due = use.due(options_.records); due > state_.recorded) {
      state_.recorded = due;
      record();
      if (summary.reason != StopReason::not_run) return;
    }
    if (loop_.save_due()) save();
    const AlgorithmState before = summary.state;
    const double direction_before = state_.direction_norm;
    const double begin = time_now(options_);
    IterationSummary step;
    std::string not_finite;
    try {
      step = algorithm_->step(oracle_, summary.state, streams_);
      state_.direction_norm = step.direction.norm().item<double>();
    } catch (const NotFiniteError& error) {
      not_finite = error.what();
    }
    summary.seconds += time_now(options_) - begin;
    summary.counts = counts();
    if (!not_finite.empty()) {
      const bool was_well = state_.watch.healthy(norm(before.inner.w), direction_before);
      fail(StopReason::not_finite, not_finite, cause_at(before), before, !was_well);
      return;
    }
    ++summary.statuses[std::string(name_of(step.status))];
    if (!went_well(before, step)) return;
    state_.bound = step.bound;
    if (hooks_.step) hooks_.step(summary.state, state_.direction_norm, summary.seconds);
    if (converged()) {
      summary.reason = StopReason::converged;
    } else if (loop_.interrupted()) {
      summary.reason = StopReason::interrupted;
    }
  }

  void record() {
    SolveSummary& summary = state_.so_far;
    const double begin = time_now(options_);
    summary.records.push_back(
        record_of(oracle_.problem(), *algorithm_, summary, state_.direction_norm, state_.bound));
    summary.recording_seconds += time_now(options_) - begin;
    if (const double loss = summary.records.back().outer_loss; !std::isfinite(loss)) {
      const AlgorithmState here = summary.state;
      fail(StopReason::not_finite,
           fmt::format("{}: the outer loss is {} after {} iterations.", algorithm_->name(), loss,
                       here.iteration),
           cause_at(here), here, true);
      // The start is always there, so that a summary has a record; later ones are of good states.
      if (summary.records.size() > 1) summary.records.pop_back();
      return;
    }
    if (hooks_.record && !hooks_.record(summary.records.back(), summary.state)) {
      state_.stopped = true;
      summary.reason = StopReason::stopped;
    }
    if (!options_.keep_points) {
      SolveRecord& last = summary.records.back();
      last.x = last.w = last.x_of_w = Tensor();
    }
  }

  void save() {
    state_.streams = streams_.positions();
    loop_.save(state_);
  }

  // ---- when it goes wrong (failure.h) ----

  // Of the failure that ends a run.
  static constexpr const char* no_repair = "none";

  static double norm(const Tensor& t) { return t.norm().item<double>(); }

  std::optional<AlgorithmSettings> settings_now() const {
    if (!options_.settings) return std::nullopt;
    return adjusted(*options_.settings, state_.adjustment);
  }

  void remake() {
    if (!options_.settings) {
      throw std::invalid_argument("solve: the state was repaired, and needs the algorithm's settings");
    }
    const AlgorithmSettings settings = *settings_now();
    repaired_ =
        options_.make ? options_.make(settings) : make_algorithm(std::string(algorithm_->name()), settings);
    algorithm_ = repaired_.get();
  }

  FailureCause cause_at(const AlgorithmState& state) const {
    const auto settings = settings_now();
    return find_cause(oracle_.problem(), settings ? &*settings : nullptr, state, state_.good);
  }

  // A step that ended with finite numbers. False: it was a failure, and has been dealt with.
  bool went_well(const AlgorithmState& before, const IterationSummary& step) {
    const double w = norm(state_.so_far.state.inner.w), direction = state_.direction_norm;
    FailureWatch& watch = state_.watch;
    if (!watch.begun()) watch.begin(norm(before.inner.w), direction);
    if (options_.settings && watch.alarmed(w, direction)) {
      if (out_of_hand(before, w, direction)) return false;
      watch.false_alarm(w, direction);
    }
    if (step.status == Status::negative_curvature && !went_on(before, step)) return false;
    watch.solves.count(solve_failed(step.status, step.needs_positive));
    if (watch.solves.ends_run()) {
      fail(StopReason::failed, failed_solves_text(), failed_solves_cause(before), before, false);
      return false;
    }
    if (watch.healthy(w, direction)) state_.good = before;
    return true;
  }

  // After an alarm, which is none while the rates are safe, unless the direction is large and the loss too.
  bool out_of_hand(const AlgorithmState& before, double w, double direction) {
    const SolveSummary& summary = state_.so_far;
    const double loss = oracle_.outer_loss(summary.state.inner.w, summary.state.x).item<double>();
    const double first_loss = summary.records.front().outer_loss;
    const bool exploded =
        !std::isfinite(w) || !std::isfinite(direction) ||
        (!(loss <= 100 * std::abs(first_loss)) && direction > state_.watch.largest_direction);
    const FailureCause why = cause_at(before);
    if (!exploded && !why.confirmed) return false;
    fail(StopReason::failed,
         fmt::format(
             "{}: {} in iteration {}: |w| is {:.3g}, |direction| {:.3g}, the outer loss {:.4g}, at first "
             "{:.4g}.",
             algorithm_->name(), why.confirmed ? "it diverges" : "the outer step explodes",
             before.iteration + 1, w, direction, loss, first_loss),
         why, before, true);
    return true;
  }

  static bool has_ended(StopReason reason) {
    return reason == StopReason::iterations || reason == StopReason::seconds ||
           reason == StopReason::oracle_calls || reason == StopReason::converged;
  }

  std::string failed_solves_text() const {
    return fmt::format(
        "{}: {} of {} linear solves failed (in the whole run: {}), so x does not follow the hypergradient.",
        algorithm_->name(), state_.watch.solves.failed, state_.watch.solves.all,
        statuses_text(state_.so_far.statuses));
  }

  FailureCause failed_solves_cause(const AlgorithmState& at) const {
    const auto settings = settings_now();
    const AlgorithmSettings* known = settings ? &*settings : nullptr;
    const auto times = [&](Status status) { return times_of(status, state_.so_far.statuses); };
    return times(Status::diverged) > times(Status::negative_curvature) + times(Status::breakdown)
               ? find_linear_cause(oracle_.problem(), known, at)
               : find_curvature_cause(oracle_.problem(), known, at);
  }

  // A run too short to be ended by them on its way.
  void end_for_failed_solves() {
    SolveSummary& summary = state_.so_far;
    const std::string what = failed_solves_text(), cause = failed_solves_cause(summary.state).cause;
    summary.failures.push_back({summary.state.iteration, what, cause, no_repair});
    summary.reason = StopReason::failed;
    summary.message = fmt::format("{} {}", what, cause);
  }

  // A linear solve that met negative curvature. What it returns may be of use, so the run goes on and says so
  // once; not where nothing came through w at all, which would pass for a hypergradient.
  bool went_on(const AlgorithmState& before, const IterationSummary& step) {
    const bool nothing = step.direct.defined() && step.direction.equal(step.direct);
    const bool damps = options_.on_failure == OnFailure::damp;
    if (answered(FailureAnswer::went_on) > 0 && !nothing && !damps) return true;
    const auto settings = settings_now();
    const FailureCause why = find_curvature_cause(oracle_.problem(), settings ? &*settings : nullptr, before);
    const std::string what = fmt::format(
        "{}: the linear solve met negative curvature in iteration {}{}.", algorithm_->name(),
        before.iteration + 1, nothing ? " before its first step, so no derivative comes through w" : "");
    if (nothing || damps) {
      fail(StopReason::failed, what, why, before, false);
      return false;
    }
    state_.so_far.failures.push_back(
        {before.iteration + 1, what, why.cause, "none: it went on", FailureAnswer::went_on});
    return true;
  }

  int64_t answered(FailureAnswer answer) const {
    const auto& failures = state_.so_far.failures;
    return std::count_if(failures.begin(), failures.end(),
                         [&](const SolveFailure& f) { return f.answer == answer; });
  }

  // A damping that the algorithm does not read repairs nothing.
  bool can_repair() const {
    if (options_.on_failure != OnFailure::damp) return options_.on_failure != OnFailure::stop;
    if (options_.make) return true;  // what an own algorithm reads is not known
    return options_read(find_algorithm(std::string(algorithm_->name())), *settings_now()).contains("damping");
  }

  // Back to the last good state, and on from there if there is a remedy. `unwell`: the state before the step
  // is already on its way out.
  void fail(StopReason reason, const std::string& what, const FailureCause& why, const AlgorithmState& before,
            bool unwell) {
    SolveSummary& summary = state_.so_far;
    summary.state = unwell || why.blame == Blame::outer_rate ? state_.good : before;
    SolveFailure failure{before.iteration + 1, what, why.cause, no_repair};
    if (can_repair() && answered(FailureAnswer::repaired) < options_.most_repairs) {
      if (const auto done = repair(options_.on_failure, why, *settings_now(), state_.adjustment)) {
        failure.repair = *done;
        failure.answer = FailureAnswer::repaired;
        summary.failures.push_back(failure);
        summary.state.iteration = before.iteration;  // counted on, or the records would go back in time
        summary.reason = StopReason::not_run;
        state_.watch.solves = {};
        remake();
        if (hooks_.went_back) hooks_.went_back(summary.state);
        return;
      }
    }
    summary.failures.push_back(failure);
    summary.reason = reason;
    summary.message = fmt::format("{} {}", what, why.cause);
  }

  const Algorithm* algorithm_;
  std::unique_ptr<const Algorithm> repaired_;
  const SolveOptions& options_;
  const SolveHooks& hooks_;
  Resumable<SolveHooks> loop_;
  Oracle oracle_;
  Streams streams_;
  SolveState state_;
  OracleCounts counts_before_;
};

// A repair that cannot be made is refused before the run, not in the middle of it.
void check_options(const Algorithm& algorithm, const SolveOptions& options) {
  options.validate();
  if (options.on_failure == OnFailure::stop || options.make) return;
  const auto& rows = algorithm_rows();
  if (std::none_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == algorithm.name(); })) {
    throw std::invalid_argument(
        fmt::format("solve: on_failure = {} needs `make`, because '{}' is not an algorithm of the registry",
                    name_of(options.on_failure), algorithm.name()));
  }
}

}  // namespace

SolveSummary solve(const Problem& problem, const Algorithm& algorithm, const SolveOptions& options,
                   const SolveHooks& hooks, const Tensor& x, const Tensor& w) {
  check_options(algorithm, options);
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
  check_options(algorithm, options);
  if (state.so_far.algorithm != algorithm.name()) {
    throw std::invalid_argument(
        fmt::format("solve: the state is one of {}, not of {}", state.so_far.algorithm, algorithm.name()));
  }
  return SolveRun(problem, algorithm, options, std::move(state), hooks).run();
}

}  // namespace bilevel
