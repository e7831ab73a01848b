#include "bilevel/run/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

namespace bilevel {
namespace {

std::atomic<bool> requested{false};
std::atomic<int> listening{0};  // objects alive
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may touch nothing else");

// A handler may call nothing but what is async-signal-safe, as write() is. On a terminal it leaves the line
// of the progress alone.
constexpr std::string_view acknowledgement =
    "\nstopping after this step, with the state saved; Ctrl-C again ends at once\n";
std::atomic<bool> stderr_is_terminal{false}, is_silent{false};

void on_signal(int /*number*/) {
  if (requested.exchange(true)) ::_exit(130);
  if (is_silent) return;
  const int error = errno;
  const std::string_view text = acknowledgement.substr(stderr_is_terminal ? 0 : 1);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  errno = error;
}

}  // namespace

StopSignal::StopSignal(bool acknowledges) {
  // Inside another one, what was asked for stays asked for.
  if (listening++ == 0) requested = false;
  is_silent = !acknowledges;
  stderr_is_terminal = ::isatty(STDERR_FILENO) == 1;
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
