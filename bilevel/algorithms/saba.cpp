#include "bilevel/algorithms/saba.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "bilevel/algorithms/option_fields.h"
#include "bilevel/algorithms/soba.h"
#include "bilevel/core/require.h"

namespace bilevel {
namespace {

// One of the two sets, cut into blocks.
struct Blocks {
  int64_t samples, size;
  Blocks(int64_t of, int64_t batch) : samples(of), size(batch == 0 ? of : std::min(of, batch)) {}

  int64_t count() const { return (samples + size - 1) / size; }
  double weight(int64_t block) const {
    return static_cast<double>(std::min(size, samples - block * size)) / static_cast<double>(samples);
  }
  Batch batch(int64_t block, uint64_t seed) const {
    return {.index = at::arange(block * size, std::min(samples, (block + 1) * size), at::kLong),
            .seed = seed};
  }
};

// All directions of one set at a block, one behind the other in one vector, and the loss where there is one.
struct AtBlock {
  Tensor directions;
  Tensor loss;
};
using Evaluate = std::function<AtBlock(const Batch&)>;

std::string entry(const std::string& set, int64_t block) { return set + "/" + std::to_string(block); }

AtBlock pass(AlgorithmState& state, Random random, const std::string& set, const Blocks& blocks,
             const Evaluate& evaluate) {
  AtBlock mean;
  for (int64_t block = 0; block < blocks.count(); ++block) {
    const AtBlock now = evaluate(blocks.batch(block, random.next()));
    const double weight = blocks.weight(block);
    mean.directions = block == 0 ? weight * now.directions : at::add(mean.directions, now.directions, weight);
    if (now.loss.defined()) mean.loss = block == 0 ? weight * now.loss : at::add(mean.loss, now.loss, weight);
    state.memory[entry(set, block)] = now.directions;
  }
  state.memory[set + "/mean"] = mean.directions;
  return mean;
}

AtBlock visit(AlgorithmState& state, Random random, const std::string& set, const Blocks& blocks,
              const Evaluate& evaluate) {
  const int64_t block = random.below(blocks.samples) / blocks.size;
  const AtBlock now = evaluate(blocks.batch(block, random.next()));
  Tensor& kept = state.memory.at(entry(set, block));
  Tensor& mean = state.memory.at(set + "/mean");
  const Tensor estimate = now.directions + (mean - kept);
  const double weight = blocks.weight(block);
  mean = at::add(mean, now.directions - kept, weight);
  kept = now.directions;
  return {estimate, now.loss};
}

// `full` is the set in one batch: then there is nothing to remember.
AtBlock estimate(AlgorithmState& state, Streams& streams, const std::string& set, const Blocks& blocks,
                 const Batch& full, const Evaluate& evaluate) {
  if (blocks.count() == 1) return evaluate(full);
  if (!state.memory.contains(set + "/mean")) {
    return pass(state, streams.random(set + " pass"), set, blocks, evaluate);
  }
  return visit(state, streams.random(set + " block"), set, blocks, evaluate);
}

}  // namespace

void SabaOptions::validate() const {
  require_positive("saba", "inner_rate", inner_rate);
  if (linear_rate != 0) require_positive("saba", "linear_rate", linear_rate);
  inner_schedule.validate();
  linear_schedule.validate();
  curvature.validate();
}

const Fields<SabaOptions>& SabaOptions::fields() {
  static const Fields<SabaOptions> table = [] {
    using O = SabaOptions;
    Fields<O> f;
    add_single_loop_fields(f);
    f.include(
        [](O & o) -> auto& { return o.outer; }, outer_fields());
    return f;
  }();
  return table;
}

Saba::Saba(const SabaOptions& options) : Algorithm(options.outer), options_(options) {
  options_.validate();
  if (options_.linear_rate == 0) options_.linear_rate = options_.inner_rate;
}

void Saba::begin(AlgorithmState& state) const { state.v = at::zeros_like(state.inner.w); }

IterationSummary Saba::advance(Oracle& oracle, AlgorithmState& state, Streams& streams) const {
  const Tensor w = state.inner.w, v = state.v, x = state.x;
  const auto of_inner = [&](const Batch& batch) -> AtBlock {
    const auto at = oracle.linearize(w, x, batch);
    const Tensor gradient = at->gradient();
    const auto [curvature_v, cross_v] = curvature_and_cross(*at, v, options_.curvature);
    return {at::cat({gradient, curvature_v, cross_v}), {}};
  };
  const auto of_outer = [&](const Batch& batch) -> AtBlock {
    const OuterGradients at = oracle.outer_gradients(w, x, batch);
    return {at::cat({at.w, at.x}), at.loss};
  };
  const Blocks inner_blocks(streams.inner_samples(), streams.options().inner_batch);
  const Blocks outer_blocks(streams.outer_samples(), streams.options().outer_batch);
  const AtBlock of_g = estimate(state, streams, "inner", inner_blocks,
                                streams.inner("sample", streams.inner_samples()), of_inner);
  const AtBlock of_f = estimate(state, streams, "outer", outer_blocks,
                                streams.outer("sample", streams.outer_samples()), of_outer);
  const int64_t n = w.numel(), m = x.numel();
  const std::vector<Tensor> g = of_g.directions.split_with_sizes({n, n, m});
  const std::vector<Tensor> f = of_f.directions.split_with_sizes({n, m});
  const Tensor direction = f[1] - g[2];
  state.inner.w = descend(w, g[0], options_.inner_rate * options_.inner_schedule.factor(state.inner.step));
  ++state.inner.step;
  state.v = descend(v, g[1] - f[0], options_.linear_rate * options_.linear_schedule.factor(state.iteration));
  state.x = outer_step(oracle, x, direction, state.outer);
  return {.direction = direction, .outer_loss = of_f.loss, .status = Status::ok};
}

}  // namespace bilevel
