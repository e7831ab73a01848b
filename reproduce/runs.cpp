#include "reproduce/runs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>

#include "bilevel/problems/softmax_loss.h"

namespace bilevel::reproduce {

const SolveRecord& TimedResult::at_seconds(double seconds) const {
  const SolveRecord* found = &summary.records.front();
  for (const SolveRecord& record : summary.records) {
    if (record.seconds <= seconds) found = &record;
  }
  return *found;
}

TimedResult run_timed(const CleaningJob& job, const TimedRun& run, double seconds, int64_t iterations,
                      int64_t records, const ReproduceOptions& options) {
  SolveOptions solve_options;
  solve_options.iterations = iterations;
  solve_options.seconds = seconds;
  solve_options.records = records;
  solve_options.seed = options.seed;
  solve_options.batches = run.batches;
  TimedResult result;
  result.label = run.label;
  result.summary = solve(*job.model.problem, *make_algorithm(run.algorithm, run.settings), solve_options,
                         {.record = [&](const SolveRecord& r, const AlgorithmState&) {
                           options.progress(fmt::format("{}: iteration {}, {:.0f} s, validation loss {:.4g}",
                                                        run.label, r.iteration, r.seconds, r.outer_loss));
                           return true;
                         }});
  if (job.sets.test.size() > 0) {
    const Tensor scores = job.model.scores(result.summary.inner_solution, job.sets.test);
    result.test_loss = mean_cross_entropy(scores, job.sets.test.labels).item<double>();
    result.test_accuracy = accuracy_percent(scores, job.sets.test.labels);
  }
  return result;
}

Json timed_row(const TimedResult& result, double seconds) {
  const SolveSummary& s = result.summary;
  return {{"method", result.label},
          {"iterations", s.state.iteration},
          {"seconds", s.seconds},
          {"calls", oracle_calls(s.counts)},
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
