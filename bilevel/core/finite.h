#pragma once
// Is every entry a finite number? One pass in the usual case: a finite sum has finite terms. Only a sum that
// is not finite, which large terms can give too, is looked at entry by entry.

#include "bilevel/core/tensor.h"

namespace bilevel {

bool all_finite(const Tensor& t);
bool finite_number(const Tensor& scalar);

// On a GPU every look at a number makes the host wait until all queued work is done, and the GPU then waits
// for the host. While an object of this class lives, what this thread asks about GPU tensors is put off: the
// functions above say yes, the true answers gather on the device, and `all_finite_so_far` reads them, with
// one wait. A step that went wrong is then found some steps later. On the CPU nothing changes.
class NoWaiting {
 public:
  NoWaiting();
  ~NoWaiting();
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;

  static bool applies_to(const Tensor& t);  // it is on a GPU and an object lives
  bool all_finite_so_far();                 // since the last question; waits

 private:
  friend bool all_finite(const Tensor& t);
  friend bool finite_number(const Tensor& scalar);
  static void remember(const Tensor& finite);

  Tensor finite_;  // a truth on the device; undefined = nothing was asked
  NoWaiting* outside_;
};

}  // namespace bilevel
