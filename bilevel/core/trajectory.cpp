#include "bilevel/core/trajectory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "bilevel/core/central_difference.h"
#include "bilevel/core/errors.h"

namespace bilevel {
namespace {

void require_defined(const Tensor& t, const char* otherwise) {
  if (!t.defined()) throw std::invalid_argument(otherwise);
}

[[noreturn]] void throw_not_finite(const Trajectory& trajectory, int64_t step, const std::string& cause) {
  throw NotFiniteError(
      fmt::format("the inner loop left the finite numbers at step {} of {} (optimizer {}, rate {:g}): {}. "
                  "Lower the inner rate "
                  "below the largest safe one, or check the data.",
                  step + 1, trajectory.steps(), trajectory.optimizer->name(), trajectory.last_rate(), cause));
}

// Where did it happen? Only asked when the end was bad, so the steps are taken again and looked at one by
// one.
[[noreturn]] void find_first_bad_step(Oracle& oracle, const Tensor& x, const Trajectory& trajectory,
                                      InnerState state) {
  for (int64_t t = 0; t < trajectory.steps(); ++t) {
    state = replay_step(oracle, x, trajectory, t, state);
    if (!oracle.finite().all_finite(state.w)) throw_not_finite(trajectory, t, "w became NaN or infinite");
  }
  throw_not_finite(trajectory, trajectory.steps() - 1, "w became NaN or infinite");
}

void check_keep(const std::vector<int64_t>& keep, int64_t steps) {
  for (const int64_t t : keep) {
    if (t < 0 || t >= steps) {
      throw std::invalid_argument(
          fmt::format("keep: step {} is outside the {} inner steps (0 to {})", t, steps, steps - 1));
    }
  }
}

Trajectory run_from(Oracle& oracle, const Tensor& x, const InnerState& start, bool start_is_learned,
                    std::shared_ptr<const InnerOptimizer> optimizer, const InnerLoop& run) {
  const OracleCounts counts_before = oracle.counts();
  check_keep(run.keep, run.options.steps);
  std::vector<int64_t> keep = run.keep;
  std::sort(keep.begin(), keep.end());

  Trajectory trajectory;
  trajectory.options = run.options;
  trajectory.optimizer = std::move(optimizer);
  trajectory.start_is_learned = start_is_learned;
  trajectory.learned_rate = oracle.inner_rate(x.detach());
  trajectory.batches.reserve(static_cast<size_t>(run.options.steps));
  for (int64_t t = 0; t < run.options.steps; ++t) {
    trajectory.batches.push_back(run.batches ? run.batches(t) : Batch{});
  }

  InnerState state = start;
  auto next_kept = keep.begin();
  for (int64_t t = 0; t < run.options.steps; ++t) {
    while (next_kept != keep.end() && *next_kept == t) {
      trajectory.kept.emplace(t, state);
      ++next_kept;
    }
    try {
      state = replay_step(oracle, x, trajectory, t, state);
    } catch (const NotFiniteError& error) {
      // The loss may only show what an earlier step did to w.
      if (t > 0 && !oracle.finite().all_finite(state.w)) find_first_bad_step(oracle, x, trajectory, start);
      throw_not_finite(trajectory, t, error.what());
    }
  }
  // One look at the end: a look at every step would stop a GPU's queue T times.
  if (!oracle.finite().all_finite(state.w)) find_first_bad_step(oracle, x, trajectory, start);
  if (run.measure_gradient) {
    trajectory.gradient_norm = oracle.inner_gradient(state.w, x, Batch{}).norm().item<double>();
  }
  trajectory.final = std::move(state);
  trajectory.counts = oracle.counts() - counts_before;
  return trajectory;
}

}  // namespace

int64_t Trajectory::bytes_kept() const {
  int64_t total = 0;
  for (const auto& [t, state] : kept) total += state.bytes();
  return total;
}

StepRate Trajectory::rate(const InnerState& before) const {
  const double factor = options.schedule.factor(before.step);
  if (learned_rate.defined()) return {0, learned_rate * factor};
  return {options.rate * factor, {}};
}

double Trajectory::last_rate() const {
  const int64_t last = std::max<int64_t>(final.step - 1, 0);
  const double base = learned_rate.defined() ? learned_rate.min().item<double>() : options.rate;
  return base * options.schedule.factor(last);
}

Trajectory run_inner(Oracle& oracle, const Tensor& x, const Tensor& start, const InnerLoop& run) {
  std::shared_ptr<const InnerOptimizer> optimizer = make_inner_optimizer(run.options);
  require_defined(x, "x is an undefined tensor");
  const Tensor learned = oracle.problem().inner_start(x);
  const bool start_is_learned = learned.defined();
  require_defined(start_is_learned ? learned : start,
                  "the inner start is an undefined tensor, and the problem has none of its own");
  const InnerState state = optimizer->start(start_is_learned ? learned.detach() : start.detach());
  return run_from(oracle, x, state, start_is_learned, std::move(optimizer), run);
}

Trajectory continue_inner(Oracle& oracle, const Tensor& x, const InnerState& start, const InnerLoop& run) {
  std::shared_ptr<const InnerOptimizer> optimizer = make_inner_optimizer(run.options);
  require_defined(x, "x is an undefined tensor");
  require_defined(start.w, "the inner state to continue from is undefined");
  if (static_cast<int64_t>(start.buffers.size()) != optimizer->buffer_count()) {
    throw std::invalid_argument(fmt::format("the state has {} buffers, but optimizer {} needs {}",
                                            start.buffers.size(), optimizer->name(),
                                            optimizer->buffer_count()));
  }
  return run_from(oracle, x, start, false, std::move(optimizer), run);
}

InnerState replay_step(Oracle& oracle, const Tensor& x, const Trajectory& trajectory, int64_t t,
                       const InnerState& before) {
  const Tensor gradient = oracle.inner_gradient(before.w, x, trajectory.batches[static_cast<size_t>(t)]);
  return trajectory.optimizer->step(before, gradient, trajectory.rate(before));
}

ReverseSweep begin_reverse(const Trajectory& trajectory, const Tensor& outer_w, const Tensor& outer_x) {
  ReverseSweep sweep;
  sweep.adjoint = trajectory.optimizer->start(outer_w);
  sweep.x = outer_x;
  return sweep;
}

void reverse_step(Oracle& oracle, const Tensor& x, const Trajectory& trajectory, int64_t t,
                  const InnerState& before, bool more, ReverseSweep& sweep) {
  const StepRate rate = trajectory.rate(before);
  const Batch& batch = trajectory.batches[static_cast<size_t>(t)];
  const bool through_x = oracle.problem().inner_loss_uses_outer();
  const bool by_difference = through_x && sweep.difference_step > 0;
  std::unique_ptr<Linearization> linear;
  if (more || !by_difference) linear = oracle.linearize(before.w, x, batch);
  Tensor gradient;
  if (trajectory.optimizer->adjoint_needs_gradient() || rate.learned.defined()) {
    gradient = linear ? linear->gradient() : oracle.inner_gradient(before.w, x, batch);
  }
  StepAdjoint step = trajectory.optimizer->adjoint(before, gradient, rate, sweep.adjoint);
  if (sweep.gathered.defined()) sweep.gathered = sweep.gathered - step.gradient;

  if (by_difference) {
    const Tensor cross =
        central_difference([&](const Tensor& w) { return oracle.inner_gradient_in_outer(w, x, batch); },
                           before.w, step.gradient, sweep.difference_step, &oracle.finite());
    if (cross.defined()) sweep.x = sweep.x + cross;
    if (more) step.before.w = step.before.w + linear->hessian(step.gradient);
  } else if (more && through_x) {
    const auto [through_w, cross] = linear->hessian_and_cross(step.gradient);
    step.before.w = step.before.w + through_w;
    sweep.x = sweep.x + cross;
  } else if (more) {
    step.before.w = step.before.w + linear->hessian(step.gradient);
  } else if (through_x) {
    sweep.x = sweep.x + linear->cross(step.gradient);
  }
  if (step.rate.defined()) {
    Tensor base_rate = step.rate * trajectory.options.schedule.factor(before.step);
    if (trajectory.learned_rate.numel() == 1) base_rate = base_rate.sum().reshape({1});
    sweep.rate = sweep.rate.defined() ? sweep.rate + base_rate : base_rate;
  }
  sweep.adjoint = std::move(step.before);
}

Tensor end_reverse(Oracle& oracle, const Tensor& x, const Trajectory& trajectory, bool with_start,
                   const ReverseSweep& sweep) {
  Tensor result = sweep.x;
  if (sweep.rate.defined()) result = result + oracle.rate_pullback(x, sweep.rate);
  if (with_start && trajectory.start_is_learned) result = result + oracle.start_pullback(x, sweep.adjoint.w);
  return result;
}

}  // namespace bilevel
