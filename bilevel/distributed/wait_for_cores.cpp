#include "bilevel/distributed/wait_for_cores.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <utility>

namespace bilevel {

WaitForCores::WaitForCores(std::string file) : name_(std::move(file)) {}
WaitForCores::~WaitForCores() {
  if (file_ >= 0) ::close(file_);
}

double WaitForCores::part() {
  constexpr double least_seconds = 0.02;
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (now - time_ < least_seconds) return -1;
  if (const int thread = ::gettid(); thread != thread_) {
    if (file_ >= 0) ::close(file_);
    file_ = ::open(name_.c_str(), O_RDONLY | O_CLOEXEC);
    thread_ = thread;
    time_ = 0;
  }
  // Nanoseconds that it has run, and that it has waited for a core.
  std::array<char, 128> text = {};
  if (file_ < 0 || ::pread(file_, text.data(), text.size() - 1, 0) <= 0) return -1;
  char* end = nullptr;
  const auto ran = std::strtoull(text.data(), &end, 10);
  if (ran == 0) return -1;  // of a kernel that does not count them
  const double waited = 1e-9 * static_cast<double>(std::strtoull(end, nullptr, 10));
  const double part = time_ == 0 ? -1 : (waited - waited_) / (now - time_);
  time_ = now;
  waited_ = waited;
  return part;
}

}  // namespace bilevel
