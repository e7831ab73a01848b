#include "bilevel/jobs/solve_run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <tuple>

#include "bilevel/core/random.h"
#include "bilevel/distributed/distributed_problem.h"
#include "bilevel/fields/option_text.h"
#include "bilevel/run/json_value.h"
#include "bilevel/run/kept_loop.h"
#include "bilevel/run/result_json.h"
#include "bilevel/run/solve_checkpoint.h"

namespace bilevel {
namespace {

nlohmann::json identity(const SolveRun& job, const AlgorithmState& state) {
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

SolveState resumed(const RunContext& context, const SolveRun& job, const Checkpoint& checkpoint) {
  const c10::Device device = job.problem.initial_outer(job.options.seed).device();
  SolveState state = take_solve(checkpoint, device);
  const nlohmann::json now = identity(job, state.so_far.state);
  require_identity(
      context, checkpoint, {{"identity", now}},
      fmt::format("the run was started on different data ({}): give it the original files", now.dump()));
  if (job.take) job.take(checkpoint);
  return state;
}

}  // namespace

namespace {

// The problem divided among the ranks, or null where this process is alone.
std::unique_ptr<DistributedProblem> divided(const RunContext& context, const SolveRun& job, const Tensor& x,
                                            const Tensor& w) {
  if (!context.group()) return nullptr;
  if (job.options.seconds > 0 && context.has_other_ranks()) {
    throw OptionError(
        fmt::format("{} with {} ranks: their clocks would stop them at different iterations; give {} or {}",
                    named("budget_seconds", fmt::format("{:g}", job.options.seconds)),
                    context.group()->size(), named("iterations"), named("budget_calls")));
  }
  const Problem& whole = job.problem;
  context.agree("data", {{"inner_samples", whole.inner_samples()},
                         {"outer_samples", whole.outer_samples()},
                         {"digest", nlohmann::ordered_json(job.data)}});
  auto result = std::make_unique<DistributedProblem>(whole, context.group());
  const uint64_t seed = job.options.seed;
  result->check(job.job, w.defined() ? w : whole.initial_inner(named_seed(seed, "inner start")),
                x.defined() ? x : whole.initial_outer(named_seed(seed, "outer start")));
  return result;
}

}  // namespace

SolveSummary solve_in(RunContext& context, const SolveRun& job, const Tensor& x, const Tensor& w) {
  const std::unique_ptr<const DistributedProblem> of_ranks = divided(context, job, x, w);
  const Problem& problem = of_ranks ? *of_ranks : job.problem;
  const std::optional<Checkpoint> checkpoint = context.load();
  std::optional<SolveState> from;
  if (checkpoint) from = resumed(context, job, *checkpoint);
  StepProgress progress{.job = job.job, .total = job.options.iterations};
  progress.before = from ? from->so_far.state.iteration : 0;
  if (from && !from->so_far.records.empty()) progress.loss = from->so_far.records.back().outer_loss;

  SolveHooks hooks;
  hooks.record = [&](const SolveRecord& record, const AlgorithmState& state) {
    progress.loss = record.outer_loss;
    if (context.has_folder()) {
      Json line = record_json(record);
      line[job.learned_name] = learned_json(job.learned ? job.learned(state.x) : state.x);
      context.record(line);
    }
    return !job.hooks.record || job.hooks.record(record, state);
  };
  hooks.step = [&](const AlgorithmState& state, double direction_norm, double seconds) {
    progress.step = state.iteration;
    progress.direction_norm = direction_norm;
    context.step(progress);
    if (job.hooks.step) job.hooks.step(state, direction_norm, seconds);
  };
  hooks.went_back = job.hooks.went_back;
  const auto put = [&job](Checkpoint& now, const SolveState& state) {
    put_solve(now, state);
    now.metadata["identity"] = identity(job, state.so_far.state);
    if (job.put) job.put(now);
  };
  keep_in<SolveState>(context, hooks, put, nlohmann::json::object());
  return from ? continue_solve(problem, job.algorithm, job.options, std::move(*from), hooks)
              : solve(problem, job.algorithm, job.options, hooks, x, w);
}

void add_communication(const RunContext& context, Json& json) {
  if (!context.group()) return;
  const Communication& all = context.group()->communication();
  json["communication"] = {{"ranks", context.group()->size()},
                           {"calls", all.calls},
                           {"bytes", all.bytes},
                           {"seconds", all.seconds}};
}

void refuse_ranks(const RunContext& context, const std::string& what, const std::string& instead) {
  if (!context.has_other_ranks()) return;
  throw OptionError(fmt::format("{} with {} ranks: it computes in one process; {}", what,
                                context.group()->size(), instead));
}

void put_best(Checkpoint& checkpoint, const BestPoint& best) {
  if (!best.w.defined()) return;  // the first record was not to be had
  checkpoint.tensors["best/x"] = best.x;
  checkpoint.tensors["best/w"] = best.w;
  checkpoint.tensors["best/now"] = best.now;
  if (best.before.defined()) checkpoint.tensors["best/before"] = best.before;
  checkpoint.metadata["best"] = {{"loss", best.loss}, {"iteration", best.iteration}};
}

BestPoint take_best(const Checkpoint& checkpoint, c10::Device device) {
  BestPoint best;
  try {
    const nlohmann::json& part = checkpoint.metadata.at("best");
    best.loss = part.at("loss").get<double>();
    best.iteration = json_as<int64_t>(part.at("iteration"));
    best.x = checkpoint.tensors.at("best/x").to(device);
    best.w = checkpoint.tensors.at("best/w").to(device);
    best.now = checkpoint.tensors.at("best/now").to(device);
    if (const auto found = checkpoint.tensors.find("best/before"); found != checkpoint.tensors.end()) {
      best.before = found->second.to(device);
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("checkpoint: the part 'best' is missing or damaged ({}); start a new run", error.what()));
  }
  return best;
}

JobEnd end_of(const SolveSummary& summary) {
  if (summary.reason == StopReason::interrupted) return {.status = RunStatus::interrupted};
  if (!ended_badly(summary.reason)) return {};
  return {RunStatus::failed, summary.message, EndCause::mathematics};
}

}  // namespace bilevel
