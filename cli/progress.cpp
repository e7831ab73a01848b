#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace bilevel::cli {
namespace {

constexpr double live_interval = 0.1;
constexpr double first_plain = 5, plain_interval = 30;

// What fits on one line of the terminal: a longer one would wrap, and only its last row could be taken back.
std::string fitting(const std::string& text) {
  ::winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return text;
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;  // a character, in UTF-8
    if (begins && ++columns == size.ws_col) return text.substr(0, i);
  }
  return text;
}

}  // namespace

Progress::Progress(const CommonOptions& options)
    : terminal_(says(options, LogLevel::info) && isatty(STDERR_FILENO) == 1),
      plain_(says(options, LogLevel::info) && !terminal_),
      every_(says(options, LogLevel::debug)),
      next_(Clock::now()),
      interval_(live_interval) {
  if (plain_) next_ += std::chrono::milliseconds(static_cast<int64_t>(1e3 * first_plain));
}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

bool Progress::due() const { return every_ || ((terminal_ || plain_) && Clock::now() >= next_); }

void Progress::operator()(const std::string& what) {
  if (!due()) return;
  if (terminal_ && !every_) {
    fmt::print(stderr, "\r\033[K{}", fitting(what));
    std::fflush(stderr);
    shown_ = true;
  } else {
    line(what);
    interval_ = plain_interval;
  }
  next_ = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1e3 * interval_));
}

void Progress::line(const std::string& text) {
  if (!terminal_ && !plain_) return;
  fmt::print(stderr, "{}{}\n", shown_ ? "\r\033[K" : "", text);
  shown_ = false;
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace bilevel::cli
