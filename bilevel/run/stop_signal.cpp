#include "bilevel/run/stop_signal.h"

#include <unistd.h>

#include <atomic>

namespace bilevel {
namespace {

std::atomic<bool> requested{false};
std::atomic<int> listening{0};  // objects alive
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may touch nothing else");

void on_signal(int /*number*/) {
  if (requested.exchange(true)) ::_exit(130);
}

}  // namespace

StopSignal::StopSignal() {
  // Inside another one, what was asked for stays asked for.
  if (listening++ == 0) requested = false;
  struct ::sigaction action {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // a write that is under way goes on
  ::sigaction(SIGINT, &action, &interrupt_before_);
  ::sigaction(SIGTERM, &action, &terminate_before_);
}

StopSignal::~StopSignal() {
  --listening;
  ::sigaction(SIGINT, &interrupt_before_, nullptr);
  ::sigaction(SIGTERM, &terminate_before_, nullptr);
}

bool stop_requested() { return requested; }

}  // namespace bilevel
