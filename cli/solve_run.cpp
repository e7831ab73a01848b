#include "cli/solve_run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <tuple>

#include "bilevel/run/solve_checkpoint.h"
#include "bilevel/run/stop_signal.h"
#include "cli/json.h"
#include "cli/progress.h"

namespace bilevel::cli {
namespace {

nlohmann::json identity(const SolveJob& job, const AlgorithmState& state) {
  return {{"inner_samples", job.problem.inner_samples()},
          {"outer_samples", job.problem.outer_samples()},
          {"inner_variables", state.inner.w.numel()},
          {"outer_variables", state.x.numel()},
          {"data", job.data}};
}

// All of x while it is short, else how it is spread: what a curve can show.
Json learned_json(const Tensor& x) {
  constexpr int64_t few = 8;
  const Tensor sorted = std::get<0>(x.detach().to(at::kCPU, at::kDouble).flatten().sort());
  const int64_t count = sorted.numel();
  Json out = Json::object();
  if (count <= few) {
    const Tensor values = x.detach().to(at::kCPU, at::kDouble).flatten();
    for (int64_t i = 0; i < count; ++i) out[fmt::format("{}", i)] = number(values[i].item<double>());
    return out;
  }
  const auto at_share = [&](double share) {
    return number(sorted[std::llround(share * static_cast<double>(count - 1))].item<double>());
  };
  return {{"least", at_share(0)},
          {"5th percentile", at_share(0.05)},
          {"median", at_share(0.5)},
          {"95th percentile", at_share(0.95)},
          {"largest", at_share(1)}};
}

SolveState resumed(const SolveJob& job, const Checkpoint& checkpoint) {
  const c10::Device device = job.problem.initial_outer(job.options.seed).device();
  SolveState state = take_solve(checkpoint, device);
  const nlohmann::json now = identity(job, state.so_far.state);
  if (const auto then = checkpoint.metadata.find("identity");
      then == checkpoint.metadata.end() || *then != now) {
    throw std::runtime_error(fmt::format(
        "--resume {}: the run was made on other data than are there now ({}): give back the files that it "
        "began with",
        job.run.resume, now.dump()));
  }
  if (job.take) job.take(checkpoint);
  return state;
}

}  // namespace

SolveSummary solve_in_folder(const SolveJob& job, RunFolder& folder,
                             const std::optional<Checkpoint>& checkpoint, const Tensor& x, const Tensor& w) {
  std::optional<SolveState> from;
  if (checkpoint) from = resumed(job, *checkpoint);
  RunProgress progress(job.common, job.command, job.options.iterations,
                       from ? from->so_far.state.iteration : 0);
  double loss = std::numeric_limits<double>::quiet_NaN();
  if (from && !from->so_far.records.empty()) loss = from->so_far.records.back().outer_loss;

  const StopSignal on_signal;
  SolveHooks hooks;
  hooks.save_seconds = job.run.save_seconds;
  hooks.interrupted = [] { return stop_requested(); };
  hooks.record = [&](const SolveRecord& record, const AlgorithmState& state) {
    loss = record.outer_loss;
    Json line = record_json(record);
    line[job.learned_name] = learned_json(job.learned ? job.learned(state.x) : state.x);
    folder.record(line);
    return !job.hooks.record || job.hooks.record(record, state);
  };
  hooks.step = [&](const AlgorithmState& state, double direction_norm, double seconds) {
    progress({.step = state.iteration, .loss = loss, .hypergradient = direction_norm});
    if (job.hooks.step) job.hooks.step(state, direction_norm, seconds);
  };
  hooks.went_back = job.hooks.went_back;
  hooks.save = [&](const SolveState& state) {
    Checkpoint now;
    put_solve(now, state);
    now.metadata["identity"] = identity(job, state.so_far.state);
    if (job.put) job.put(now);
    folder.save(std::move(now));
  };
  return from ? continue_solve(job.problem, job.algorithm, job.options, std::move(*from), hooks)
              : solve(job.problem, job.algorithm, job.options, hooks, x, w);
}

int end_solve_run(const CLI::App& command, RunFolder& folder, const SolveSummary& summary, const Json& json) {
  switch (summary.reason) {
    case StopReason::interrupted:
      folder.end(RunStatus::interrupted, "", json);
      say_interrupted(command, folder);
      return interrupted;
    case StopReason::not_finite:
    case StopReason::failed:
      folder.end(RunStatus::failed, summary.message, json);
      fmt::print(stderr, "bilevel: {}\n", summary.message);
      return not_finite;
    default:
      folder.end(RunStatus::finished, "", json);
      return success;
  }
}

int end_without_answer(const CLI::App& command, RunFolder& folder, const SolveSummary& summary,
                       const Json& json, const CommonOptions& common) {
  if (common.json) {
    fmt::print("{}\n", json.dump());
  } else {
    print_linear_solves(summary);
    print_failures(summary);
  }
  return end_solve_run(command, folder, summary, json);
}

}  // namespace bilevel::cli
