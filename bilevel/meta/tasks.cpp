#include "bilevel/meta/tasks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <limits>
#include <stdexcept>
#include <utility>

#include "bilevel/core/require.h"

namespace bilevel::meta {
namespace {

constexpr int64_t largest_count = 10000;  // a task is held in memory many times over

}  // namespace

const char* part_name(Part part) {
  switch (part) {
    case Part::train:
      return "train";
    case Part::valid:
      return "valid";
    case Part::test:
      return "test";
  }
  throw std::invalid_argument(fmt::format("part = {}: must be train, valid or test", static_cast<int>(part)));
}

void TaskShape::validate() const {
  require_between("ways", ways, 2, largest_count);
  require_between("shots", shots, 1, largest_count);
  require_between("queries", queries, 1, largest_count);
}

Random task_stream(uint64_t seed, Part part, int64_t number) {
  return Random(
      mix_seeds(named_seed(named_seed(seed, "tasks"), part_name(part)), static_cast<uint64_t>(number)));
}

std::vector<int64_t> draw_without_replacement(Random& random, int64_t population, int64_t count) {
  if (count < 0 || count > population) {
    throw std::invalid_argument(
        fmt::format("draw_without_replacement: {} of {}: must be 0 to {}", count, population, population));
  }
  // The first steps of a Fisher-Yates shuffle.
  std::vector<int64_t> numbers(static_cast<size_t>(population));
  for (int64_t i = 0; i < population; ++i) numbers[static_cast<size_t>(i)] = i;
  for (int64_t i = 0; i < count; ++i) {
    std::swap(numbers[static_cast<size_t>(i)],
              numbers[static_cast<size_t>(i + random.below(population - i))]);
  }
  numbers.resize(static_cast<size_t>(count));
  return numbers;
}

Tensor class_targets(int64_t tasks, int64_t ways, int64_t each, const at::Device& device) {
  const Tensor numbers = at::arange(ways, at::TensorOptions().dtype(at::kLong).device(device));
  return numbers.repeat_interleave(each).expand({tasks, ways * each}).contiguous();
}

void require_task_numbers(int64_t first, int64_t count) {
  if (first < 0 || count < 1 || first > std::numeric_limits<int64_t>::max() - count) {
    throw std::invalid_argument(
        fmt::format("tasks from number {}, {} of them: the first must be at least 0, their count at least 1",
                    first, count));
  }
}

void require_classes(const char* source, Part part, int64_t classes, int64_t ways, const char* way_out) {
  if (classes < ways) {
    throw std::invalid_argument(
        fmt::format("ways = {}: {} has {} {} classes, and a task takes {} different ones; "
                    "ask for at most {} ways, or {}",
                    ways, source, classes, part_name(part), ways, classes, way_out));
  }
}

}  // namespace bilevel::meta
