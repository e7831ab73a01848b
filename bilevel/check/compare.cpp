#include "bilevel/check/compare.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bilevel/check/compare_rates.h"
#include "bilevel/check/compared_exchange.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

bool ended_well(const std::vector<ComparedRun>& runs) {
  return std::none_of(runs.begin(), runs.end(),
                      [](const ComparedRun& run) { return ended_badly(run.summary.reason); });
}

// All runs of one comparison, by one yardstick.
class Comparing {
 public:
  Comparing(const Problem& problem, const CompareOptions& options, const CompareProgress& progress,
            ProcessGroup* group)
      : problem_(problem),
        options_(options),
        progress_(progress),
        group_(group),
        value_(problem, options.value) {}

  Comparison run() {
    choose_yardstick();
    const std::vector<Competitor> all = competitors(options_);
    result_.algorithms.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      if (!is_dealt_here(i, group_)) continue;
      result_.algorithms[i] = compared(all[i]);
      if (!unmeasured_.empty() && !unmeasured_at_) unmeasured_at_ = i;
    }
    if (group_ != nullptr) {
      unmeasured_ = exchange_compared(*group_, problem_.initial_outer(0).options(), result_.algorithms,
                                      unmeasured_, unmeasured_at_.value_or(0));
    }
    if (by_value() && !unmeasured_.empty()) {
      result_.yardstick = Yardstick::own_loss;
      result_.why =
          unmeasured_ + "; the rates were chosen by " + std::string(name_of(Yardstick::value_function));
      for (ComparedAlgorithm& algorithm : result_.algorithms) {
        for (ComparedRun& run : algorithm.runs) {
          for (ComparedRecord& record : run.records) {
            record.value = record.record.outer_loss;
            record.gradient_norm.reset();
          }
        }
      }
    }
    return std::move(result_);
  }

 private:
  bool by_value() const { return result_.yardstick == Yardstick::value_function; }
  void say(const std::string& what) const {
    if (progress_) progress_(what);
  }

  bool searched(const Competitor& one) const { return options_.search.on && !one.as_it_is; }

  // At the first x, before anything is run: an inner problem that cannot be solved there is not solved later.
  void choose_yardstick() {
    result_.yardstick = options_.measure_value ? Yardstick::value_function : Yardstick::own_loss;
    if (!by_value()) return;
    say("solving the inner problem at the first x");
    const uint64_t seed = options_.seeds.front();
    if (value_.point(problem_.initial_outer(seed), problem_.initial_inner(seed))) return;
    result_.yardstick = Yardstick::own_loss;
    result_.why = "at the first x " + value_.why();
  }

  std::optional<double> score(const SolveRecord& record) {
    if (!by_value()) return record.outer_loss;
    if (record.iteration > 0) return value_.value(record.x, record.w);
    // Every candidate of every algorithm begins at the same few points.
    for (const auto& [x, value] : starts_) {
      if (x.equal(record.x)) return value;
    }
    const auto value = value_.value(record.x, record.w);
    if (value) starts_.emplace_back(record.x, *value);
    return value;
  }

  ComparedAlgorithm compared(const Competitor& one) {
    ComparedAlgorithm result;
    result.name = one.name;
    result.family = one.family;
    CompareOptions own = options_;
    if (one.family == Family::cold) own.settings.inner.steps = options_.cold_steps;
    own.solve.batches = batches_of(options_, one);
    int64_t iterations = own.solve.iterations;
    if (!one.as_it_is && has_schedule_with_end(own.settings)) {
      iterations = iterations_within(problem_, one, own.settings, own.solve);
      result.schedule_iterations = iterations;
    }
    RateCandidates candidates{.best_first = {{.settings = own.settings}}};
    if (searched(one)) {
      candidates = search_rates(
          problem_, own, one, iterations, [this](const SolveRecord& r) { return score(r); }, progress_);
    }
    result.candidates = candidates.tried;
    result.failed_candidates = candidates.failed;
    run_first_that_holds(one, own, candidates.best_first, iterations, result);
    for (ComparedRun& run : result.runs) measure(one, run);
    return result;
  }

  // A rate that looked best in the short runs of the search may still diverge in a whole one. Those that did
  // not even lower the loss there are not worth a whole run, but for the first.
  void run_first_that_holds(const Competitor& one, const CompareOptions& own,
                            const std::vector<RateCandidate>& candidates, int64_t iterations,
                            ComparedAlgorithm& result) {
    double best = std::numeric_limits<double>::infinity();  // of those that raised the loss
    for (const RateCandidate& candidate : candidates) {
      const bool first = result.runs.empty();
      if (!first && !candidate.lowers) break;
      const AlgorithmSettings settings = with_schedule_end(candidate.settings, iterations);
      std::vector<ComparedRun> runs = all_seeds(one, own, settings);
      const bool well = ended_well(runs);
      const auto change = well ? change_of(runs) : std::nullopt;
      const bool holds = change && change->last <= change->first;
      const double last = change ? change->last : std::numeric_limits<double>::infinity();
      if (first || holds || last < best) {
        best = last;
        result.runs = std::move(runs);
        if (!one.as_it_is) {
          result.inner_steps = settings.inner.steps;
          result.inner_rate = settings.inner.rate;
          result.outer_rate = settings.outer.rate;
        }
      }
      if (holds) return;
      if (searched(one)) ++result.dropped_candidates;
    }
  }

  std::vector<ComparedRun> all_seeds(const Competitor& one, const CompareOptions& own,
                                     const AlgorithmSettings& settings) {
    std::vector<ComparedRun> runs;
    SolveOptions solve_options = own.solve;
    solve_options.keep_points = true;
    if (!one.as_it_is) solve_options.settings = settings;
    if (!one.of_registry) solve_options.make = one.make;
    const std::shared_ptr<const Algorithm> algorithm = one.as_it_is ? one.as_it_is : one.make(settings);
    for (const uint64_t seed : options_.seeds) {
      say(fmt::format("{}: seed {}", one.name, seed));
      solve_options.seed = seed;
      ComparedRun run;
      run.seed = seed;
      run.summary = solve(problem_, *algorithm, solve_options);
      runs.push_back(std::move(run));
    }
    return runs;
  }

  // Of the yardstick, mean over the seeds. nullopt where it cannot be measured.
  struct Change {
    double first = 0, last = 0;
  };
  std::optional<Change> change_of(const std::vector<ComparedRun>& runs) {
    Change change;
    for (const ComparedRun& run : runs) {
      const auto first = score(run.summary.records.front()), last = score(run.summary.records.back());
      if (!first || !last || !std::isfinite(*first) || !std::isfinite(*last)) return std::nullopt;
      change.first += *first / static_cast<double>(runs.size());
      change.last += *last / static_cast<double>(runs.size());
    }
    return change;
  }

  void measure(const Competitor& one, ComparedRun& run) {
    say(fmt::format("{}: measuring seed {}", one.name, run.seed));
    for (SolveRecord& record : run.summary.records) {
      ComparedRecord compared;
      compared.value = record.outer_loss;
      if (by_value() && unmeasured_.empty()) {
        if (const auto point = value_.point(record.x, record.w)) {
          compared.value = point->value;
          compared.gradient_norm = point->gradient_norm;
        } else {
          unmeasured_ = fmt::format("at iteration {} of {} with seed {} {}", record.iteration, one.name,
                                    run.seed, value_.why());
        }
      }
      record.x = Tensor();
      record.w = Tensor();
      compared.record = std::move(record);
      run.records.push_back(std::move(compared));
    }
    run.summary.records.clear();
  }

  const Problem& problem_;
  const CompareOptions& options_;
  const CompareProgress& progress_;
  ProcessGroup* group_;
  ValueFunction value_;
  std::vector<std::pair<Tensor, double>> starts_;  // x and f(x, w*(x))
  std::string unmeasured_;                         // where the value function could not be measured, and why
  std::optional<size_t> unmeasured_at_;            // which algorithm that was
  Comparison result_;
};

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
  require_nonnegative("compare: search seconds", seconds);
  for (const auto& rates : {outer_rates, inner_factors}) {
    if (rates.empty()) throw std::invalid_argument("compare: the search for rates has no candidates");
    for (const double rate : rates) require_positive("compare", "a candidate rate", rate);
  }
}

void CompareOptions::validate() const {
  if (algorithms.empty() && own.empty()) {
    throw std::invalid_argument("compare: algorithms: name at least one");
  }
  if (seeds.empty()) throw std::invalid_argument("compare: seeds: name at least one");
  (void)competitors(*this);
  solve.validate();
  stochastic_batches.validate();
  search.validate();
  value.validate();
}

std::string_view name_of(Yardstick yardstick) {
  return yardstick == Yardstick::value_function ? "f(x, w*(x))" : "own f(x, w)";
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
      if (record.gradient_norm) norms.push_back(*record.gradient_norm);
    }
    point.value = mean_and_spread(values);
    if (norms.size() == values.size()) point.gradient_norm = mean_and_spread(norms);
    result.push_back(point);
  }
  return result;
}

Comparison compare_algorithms(const Problem& problem, const CompareOptions& options,
                              const CompareProgress& progress, ProcessGroup* group) {
  options.validate();
  return Comparing(problem, options, progress, group).run();
}

}  // namespace bilevel
