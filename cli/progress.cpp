#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

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

RunProgress::RunProgress(const CommonOptions& options, std::string command, int64_t total, int64_t done)
    : progress_(options),
      command_(std::move(command)),
      total_(total),
      before_(done),
      begin_(std::chrono::steady_clock::now()) {}

void RunProgress::operator()(const At& at) {
  if (!progress_.due()) return;
  const double seconds =
      std::max(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(), 1e-9);
  const double rate = static_cast<double>(at.step - before_) / seconds;
  std::string text = total_ > 0 ? fmt::format("{}: {}/{}", command_, at.step, total_)
                                : fmt::format("{}: {}", command_, at.step);
  text += rate >= 1 || rate == 0 ? fmt::format(", {:.1f} a second", rate)
                                 : fmt::format(", {:.2f} s each", 1 / rate);
  if (std::isfinite(at.loss)) text += fmt::format(", loss {:.5g}", at.loss);
  if (std::isfinite(at.hypergradient)) text += fmt::format(", hypergradient {:.3g}", at.hypergradient);
  if (!at.more.empty()) text += ", " + at.more;
  if (total_ > at.step && rate > 0) {
    text += fmt::format(", {} left", time_text(static_cast<double>(total_ - at.step) / rate));
  }
  progress_(text);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace bilevel::cli
