#pragma once
// Few-shot tasks: N classes that the learner has not met, k examples of each to learn from and q to be judged
// by; or a function to be regressed from k points. Tasks come stacked, because they are solved together, and
// by number, because a run must be able to go on, or to be repeated, from anywhere.

#include <cstdint>
#include <vector>

#include "bilevel/core/random.h"
#include "bilevel/core/tensor.h"

namespace bilevel::meta {

// Classes of different parts are disjoint.
enum class Part { train, valid, test };
const char* part_name(Part part);

struct TaskShape {
  int64_t ways = 5;      // N
  int64_t shots = 1;     // k: training examples of a class
  int64_t queries = 15;  // q: validation examples of a class
  void validate() const;
};

// B tasks; the first dimension of every tensor counts them. n = N k, m = N q; examples of a task lie class by
// class, targets are int64 numbers 0..N-1. In regression n = k, m = q and the targets are B x n x outputs of
// the inputs' dtype.
struct TaskBatch {
  Tensor train_inputs;   // B x n x (channels x height x width, or features)
  Tensor train_targets;  // B x n
  Tensor valid_inputs;   // B x m x ...
  Tensor valid_targets;  // B x m
  int64_t tasks() const { return train_inputs.size(0); }
};

class TaskSource {
 public:
  virtual ~TaskSource() = default;
  virtual bool regression() const { return false; }
  virtual int64_t outputs() const = 0;                   // N, or the dimension of a regression's targets
  virtual std::vector<int64_t> input_shape() const = 0;  // of one example
  virtual int64_t classes(Part part) const = 0;          // how many the part has; 0 in regression
  // Tasks number `first` to `first` + `count` - 1 of the part's endless sequence: a pure function of the
  // source's seed, the part and the number.
  virtual TaskBatch tasks(Part part, int64_t first, int64_t count) const = 0;
};

// What sources are made with. The stream of one task's draws: a task depends on no other.
Random task_stream(uint64_t seed, Part part, int64_t number);
// `count` numbers out of 0 .. population-1, all different, in random order.
std::vector<int64_t> draw_without_replacement(Random& random, int64_t population, int64_t count);
// 0 .. ways-1, each `each` times, once for every task: tasks x (ways each), int64.
Tensor class_targets(int64_t tasks, int64_t ways, int64_t each, const at::Device& device);
// Throws std::invalid_argument unless first >= 0 and count >= 1.
void require_task_numbers(int64_t first, int64_t count);
// Throws std::invalid_argument naming the part if it has fewer classes than a task takes.
void require_classes(const char* source, Part part, int64_t classes, int64_t ways, const char* way_out);

}  // namespace bilevel::meta
