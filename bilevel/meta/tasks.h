#pragma once
// Few-shot tasks: N classes that the learner has not met, k examples of each to learn from and q to be judged
// by; or a function to be regressed from k points. Tasks come stacked, because they are solved together, and
// by number, because a run must be able to go on, or to be repeated, from anywhere.

#include <cstdint>
#include <vector>

#include "bilevel/core/tensor.h"

namespace bilevel::meta {

// Classes of different parts are disjoint.
enum class Part { train, valid, test };

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

}  // namespace bilevel::meta
