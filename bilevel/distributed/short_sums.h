#pragma once
// Sums by Gloo's own algorithms on connections in its synchronous mode: the thread that wants a sum sends and
// receives itself. c10d hands every sum to a thread of its own, and that one to the thread of Gloo's loop;
// where every core has a rank that computes, each of these waits for a core, up to a scheduler's tick (4 ms).

#ifdef BILEVEL_HAS_GLOO_LIBRARY

#include <gloo/algorithm.h>
#include <gloo/context.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "bilevel/core/tensor.h"
#include "bilevel/distributed/wait_for_cores.h"

namespace bilevel {

struct ShortSumsOptions {
  bool in_pieces = true;  // also of many numbers: where a piece's latency is small
  bool may_spin = true;   // every rank has a core
};

class ShortSums {
 public:
  // `context` is connected, and nobody else uses it.
  ShortSums(std::shared_ptr<::gloo::Context> context, ShortSumsOptions options);

  // False where it is not for this class: many numbers, others than float or double, not on CPUs.
  bool sum_(Tensor& contiguous);

 private:
  struct Kept {
    Tensor numbers;
    std::unique_ptr<::gloo::Algorithm> sum;
  };
  Kept& kept_for(at::ScalarType type, int64_t count);
  void spin(bool whether);
  void choose_how_to_wait();

  std::shared_ptr<::gloo::Context> context_;
  ShortSumsOptions options_;
  WaitForCores contention_;
  bool spins_ = false;
  std::map<std::pair<at::ScalarType, int64_t>, Kept> kept_;
};

}  // namespace bilevel

#endif
