#include "reproduce/runs.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "bilevel/problems/softmax_loss.h"
#include "reproduce/dealt.h"

namespace bilevel::reproduce {

const SolveRecord& TimedResult::at_seconds(double seconds) const {
  const SolveRecord* found = &summary.records.front();
  for (const SolveRecord& record : summary.records) {
    if (record.seconds <= seconds) found = &record;
  }
  return *found;
}

std::string label_of(RunAxis axis) {
  switch (axis) {
    case RunAxis::iterations:
      return "iterations";
    case RunAxis::seconds:
      return "seconds";
    case RunAxis::log_seconds:
      return "log10 of seconds";
    case RunAxis::calls:
      return "oracle calls";
    case RunAxis::log_calls:
      return "log10 of oracle calls";
    case RunAxis::samples:
      return "examples read";
    case RunAxis::log_samples:
      return "log10 of examples read";
  }
  return "";
}

double position(const SolveRecord& record, RunAxis axis) {
  switch (axis) {
    case RunAxis::iterations:
      return static_cast<double>(record.iteration);
    case RunAxis::seconds:
      return record.seconds;
    case RunAxis::log_seconds:
      return std::log10(record.seconds);  // the start, at 0 seconds, is nowhere
    case RunAxis::calls:
      return static_cast<double>(oracle_calls(record.counts));
    case RunAxis::log_calls:
      return std::log10(position(record, RunAxis::calls));
    case RunAxis::samples:
      return static_cast<double>(record.counts.samples);
    case RunAxis::log_samples:
      return std::log10(position(record, RunAxis::samples));
  }
  return 0;
}

Points TimedResult::validation_curve(RunAxis axis) const {
  Points points;
  for (const SolveRecord& record : summary.records) {
    const double x = position(record, axis);
    if (std::isfinite(x)) points.emplace_back(x, record.outer_loss);
  }
  return points;
}

double TimedResult::loss_at(RunAxis axis, double place) const {
  return ended_well() ? value_at(validation_curve(axis), place) : std::nan("");
}

Points TimedResult::test_curve(RunAxis axis) const {
  Points points;
  for (size_t i = 0; i < test_losses.size(); ++i) {
    const double x = position(summary.records[i], axis);
    if (std::isfinite(x)) points.emplace_back(x, test_losses[i]);
  }
  return points;
}

TimedResult run_timed(const CleaningJob& job, const TimedRun& run, const RunLengths& lengths,
                      const ReproduceOptions& options) {
  SolveOptions solve_options;
  solve_options.iterations = lengths.iterations;
  solve_options.seconds = lengths.seconds;
  solve_options.records = lengths.records;
  solve_options.seed = options.seed;
  solve_options.batches = run.batches;
  solve_options.processor_time = takes_processor_time(options);
  TimedResult result;
  result.label = run.label;
  result.summary = solve(
      *job.model.problem, *make_algorithm(run.algorithm, run.settings), solve_options,
      {.record = [&](const SolveRecord& r, const AlgorithmState&) {
        options.progress(fmt::format("{}: iteration {}, {:.0f} s, validation loss {:.4g}", run.label,
                                     r.iteration, r.seconds, r.outer_loss));
        if (job.sets.test.size() > 0) {
          result.test_losses.push_back(
              mean_cross_entropy(job.model.scores(r.w, job.sets.test), job.sets.test.labels).item<double>());
        }
        return true;
      }});
  if (job.sets.test.size() > 0) {
    const Tensor scores = job.model.scores(result.summary.inner_solution, job.sets.test);
    result.test_loss = mean_cross_entropy(scores, job.sets.test.labels).item<double>();
    result.test_accuracy = accuracy_percent(scores, job.sets.test.labels);
  }
  return result;
}

bool takes_processor_time(const ReproduceOptions& options) {
  return at::get_num_threads() == 1 && options.tensors.device().is_cpu();
}

double rate_of_lowest_loss(const std::vector<double>& rates,
                           const std::function<SolveSummary(double rate)>& trial, std::string& tried) {
  double best = 0, lowest = std::numeric_limits<double>::infinity();
  for (const double rate : rates) {
    const SolveSummary summary = trial(rate);
    const double loss = summary.records.back().outer_loss;
    const bool failed = ended_badly(summary.reason) || !std::isfinite(loss);
    tried += fmt::format("{}{} {}", tried.empty() ? "" : ", ", rate,
                         failed ? fmt::format("failed in iteration {}", summary.state.iteration + 1)
                                : fmt::format("{:.4f}", loss));
    if (!failed && loss < lowest) {
      lowest = loss;
      best = rate;
    }
  }
  if (best == 0) throw std::runtime_error("the outer rate: every one failed (" + tried + ")");
  return best;
}

std::vector<TimedResult> run_timed(const std::vector<TimedCell>& grid, const RunLengths& lengths,
                                   const ReproduceOptions& options) {
  return dealt(
      options, grid.size(),
      [&](size_t i) {
        ReproduceOptions seeded = options;
        seeded.seed = grid[i].seed;
        return run_timed(*grid[i].job, grid[i].run, lengths, seeded);
      },
      [](const TimedResult& r) {
        return Packed{{"label", r.label},
                      {"summary", packed(r.summary)},
                      {"test_losses", r.test_losses},
                      {"test_loss", r.test_loss},
                      {"test_accuracy", r.test_accuracy}};
      },
      [](const Packed& p) {
        return TimedResult{.label = p.at("label").get<std::string>(),
                           .summary = unpacked(p.at("summary")),
                           .test_losses = p.at("test_losses").get<std::vector<double>>(),
                           .test_loss = p.at("test_loss").get<double>(),
                           .test_accuracy = p.at("test_accuracy").get<double>()};
      });
}

Json timed_row(const TimedResult& result, double seconds) {
  const SolveSummary& s = result.summary;
  return {{"method", result.label},
          {"iterations", s.state.iteration},
          {"seconds", s.seconds},
          {"calls", oracle_calls(s.counts)},
          {"examples", s.counts.samples},
          {"first loss", s.records.front().outer_loss},
          {"loss at 1/3", number(result.at_seconds(seconds / 3).outer_loss)},
          {"loss", number(result.loss())},
          {"test loss", number(result.test_loss)},
          {"test acc.", number(result.test_accuracy)},
          {"ended", ended_badly(s.reason) ? std::string(name_of(s.reason)) : "ok"}};
}

NamedCleaningOptions named_set(const std::string& set, const ReproduceOptions& options) {
  NamedCleaningOptions named;
  named.set = set;
  if (!options.data_dir.empty()) named.folder = options.data_dir;
  named.seed = options.seed;
  named.dtype = c10::typeMetaToScalarType(options.tensors.dtype());
  return named;
}

}  // namespace bilevel::reproduce
