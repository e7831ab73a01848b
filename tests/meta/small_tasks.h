#pragma once
// Small random tasks for tests of learners: what they hold means nothing, but every number matters.

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/meta/tasks.h"

namespace bilevel::meta {

inline TaskBatch small_tasks(int64_t tasks, std::vector<int64_t> input, int64_t ways = 3, int64_t shots = 2,
                             int64_t queries = 3, uint64_t seed = 1) {
  const auto inputs = [&](const char* name, int64_t examples) {
    std::vector<int64_t> shape = {tasks, examples};
    shape.insert(shape.end(), input.begin(), input.end());
    return Random(named_seed(seed, name)).normal(shape, at::kDouble);
  };
  const auto targets = [&](int64_t each) {
    return at::arange(ways, at::kLong).repeat_interleave(each).expand({tasks, ways * each}).contiguous();
  };
  return {inputs("train", ways * shots), targets(shots), inputs("valid", ways * queries), targets(queries)};
}

inline TaskBatch small_regression(int64_t tasks, uint64_t seed = 1) {
  const auto draw = [&](const char* name, int64_t examples, int64_t numbers) {
    return Random(named_seed(seed, name)).normal({tasks, examples, numbers}, at::kDouble);
  };
  return {draw("a", 6, 2), draw("b", 6, 1), draw("c", 8, 2), draw("d", 8, 1)};
}

inline TaskBatch one_of(const TaskBatch& tasks, int64_t i) {
  return {tasks.train_inputs.narrow(0, i, 1), tasks.train_targets.narrow(0, i, 1),
          tasks.valid_inputs.narrow(0, i, 1), tasks.valid_targets.narrow(0, i, 1)};
}

inline double relative_distance(const Tensor& a, const Tensor& b) {
  return ((a - b).norm() / (b.norm() + 1e-300)).item<double>();
}

}  // namespace bilevel::meta
