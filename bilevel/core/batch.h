#pragma once
// Minibatches as values: a batch is the list of examples it holds and one seed for all that is random in
// using it (dropout, augmentation, noise). A stream is a pure function from (root seed, name, position) to
// batches, so it can be replayed from any position and a checkpoint of it is one integer.

#include <cstdint>
#include <string>
#include <string_view>

#include "bilevel/core/tensor.h"

namespace bilevel {

struct Batch {
  Tensor index;       // int64 indices on the CPU, the same on every device; undefined = the full set
  uint64_t seed = 0;  // drives dropout, augmentation and noise

  bool is_full() const { return !index.defined(); }
  int64_t size(int64_t population) const { return is_full() ? population : index.numel(); }
};

struct BatchOptions {
  int64_t size = 0;               // 0 = the full set every time, in order
  bool with_replacement = false;  // false: every example once per epoch, in a new order each epoch
  bool drop_last = false;         // without replacement: leave out an epoch's short last batch
  void validate(int64_t population) const;
};

class BatchStream {
 public:
  BatchStream(uint64_t root_seed, std::string_view name, int64_t population, BatchOptions options = {});

  Batch next();  // the batch at `position()`, which then moves on by one
  Batch at(int64_t position) const;
  int64_t position() const { return position_; }
  void seek(int64_t position);
  int64_t batches_per_epoch() const;

 private:
  const Tensor& order_of_epoch(int64_t epoch) const;

  uint64_t seed_;
  int64_t population_;
  BatchOptions options_;
  int64_t position_ = 0;
  mutable int64_t cached_epoch_ = -1;
  mutable Tensor cached_order_;
};

}  // namespace bilevel
