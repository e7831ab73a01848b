#pragma once
// For tests of what a rule does with its samples: a problem with x in both losses, and one iteration with
// every batch that it read.

#include <ATen/ATen.h>

#include <set>
#include <string>
#include <vector>

#include "bilevel/algorithms/registry.h"
#include "bilevel/problems/quadratic.h"
#include "tests/support.h"

namespace bilevel::test {

// The quadratic with df/dx != 0, so that a rule that drops it is seen.
class DirectQuadratic : public ForwardingProblem {
 public:
  explicit DirectQuadratic(const Problem& base) : ForwardingProblem(base) {}
  Tensor outer_loss(const Tensor& w, const Tensor& x, const Batch& b) const override {
    const double scale = b.is_full() ? 1.0 : 1.0 + 0.1 * static_cast<double>(b.seed % 7);  // sampled, too
    return base_.outer_loss(w, x, b) + scale * (x.square().sum() + x.sum() * w.sum());
  }
};

struct SampledRun {
  explicit SampledRun(const Algorithm& rule, StreamOptions batches = {.inner_batch = 5, .outer_batch = 4},
                      uint64_t seed = 2)
      : algorithm(rule), oracle(counted), streams(seed, 12, 12, batches) {
    state = algorithm.init(oracle, vec({0.3, -0.2, 0.5}), vec({0.1, 0.7, -0.4}));
  }
  IterationSummary step() {
    counted.forget();
    before = state;
    return algorithm.step(oracle, state, streams);
  }
  const CountingProblem::Calls& calls() const { return counted.calls(); }
  Dense at(const Tensor& w, const Tensor& x, const Batch& inner = {}, const Batch& outer = {}) const {
    return dense_at(problem, w, x, inner, outer);
  }

  Quadratic base{{.dimension = 3, .samples = 12, .seed = 11}};
  DirectQuadratic problem{base};
  CountingProblem counted{problem};
  const Algorithm& algorithm;
  Oracle oracle;
  Streams streams;
  AlgorithmState state, before;
};

inline std::vector<int64_t> sizes(const std::vector<Batch>& batches, int64_t population = 12) {
  std::vector<int64_t> result;
  for (const Batch& b : batches) result.push_back(b.size(population));
  return result;
}
// How many different samples stand in the lists.
inline size_t different(const std::vector<std::vector<Batch>>& lists) {
  std::set<uint64_t> seeds;
  for (const auto& list : lists) {
    for (const Batch& b : list) seeds.insert(b.seed);
  }
  return seeds.size();
}

constexpr double sampled_rate = 0.02;  // below 1 / L of the quadratic above

}  // namespace bilevel::test
