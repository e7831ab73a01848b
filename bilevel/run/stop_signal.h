#pragma once
// Ctrl-C and a polite kill as a question that a loop asks between two iterations, so that a run ends with its
// state on disk. The first signal is acknowledged on stderr at once, because the iteration may take minutes;
// a second one ends the process.

#include <csignal>

namespace bilevel {

// While it lives, SIGINT and SIGTERM set the flag; afterwards they do what they did before.
class StopSignal {
 public:
  // Forgets an earlier request, unless inside another one. Of several processes that do one thing, one alone
  // acknowledges.
  explicit StopSignal(bool acknowledges = true);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

 private:
  struct ::sigaction interrupt_before_ {
  }, terminate_before_{};
};

bool stop_requested();

}  // namespace bilevel
