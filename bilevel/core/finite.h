#pragma once
// Is every entry a finite number? One pass in the usual case: a finite sum has finite terms. Only a sum that
// is not finite, which large terms can give too, is looked at entry by entry.

#include "bilevel/core/tensor.h"

namespace bilevel {

bool all_finite(const Tensor& t);
bool finite_number(const Tensor& scalar);

// The same questions, as whoever works with an oracle asks them (Oracle::finite): on a GPU every look at a
// number makes the host wait until all queued work is done, and the GPU then waits for the host, so they can
// be put off.
class FiniteChecks {
 public:
  bool all_finite(const Tensor& t);
  bool finite_number(const Tensor& scalar);
  bool puts_off(const Tensor& t) const;  // what is asked of it is not looked at now

 private:
  friend class NoWaiting;
  enum class PutOff { nothing, on_gpus, everything };
  void remember(const Tensor& finite);

  PutOff put_off_ = PutOff::nothing;
  Tensor finite_;  // a truth on the device; undefined = nothing was asked
};

// While an object of this class lives, what is asked about GPU tensors is put off: the checks say yes, the
// true answers gather on the device, and `all_finite_so_far` reads them, with one wait. A step that went
// wrong is then found some steps later. On the CPU nothing changes, unless a test asks for it.
class NoWaiting {
 public:
  explicit NoWaiting(FiniteChecks& checks, bool on_cpu_too = false);
  ~NoWaiting();
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;

  bool all_finite_so_far();  // since the last question; waits

 private:
  FiniteChecks& checks_;
  FiniteChecks::PutOff before_;
};

}  // namespace bilevel
