#pragma once
// Whether other threads want this thread's core.

#include <string>

namespace bilevel {

// How long the calling thread has waited for a core although it could have run.
class WaitForCores {
 public:
  // `file`: where the kernel says it.
  explicit WaitForCores(std::string file = "/proc/thread-self/schedstat");
  ~WaitForCores();
  WaitForCores(const WaitForCores&) = delete;
  WaitForCores& operator=(const WaitForCores&) = delete;
  // As a part of the time since the last look, of at least 20 ms; negative: too early, or not to be known.
  double part();

 private:
  std::string name_;
  int file_ = -1;  // of one thread
  int thread_ = 0;
  double time_ = 0, waited_ = 0;  // seconds
};

}  // namespace bilevel
